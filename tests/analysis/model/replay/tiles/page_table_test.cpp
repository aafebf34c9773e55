// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/tiles/tile_memory.hpp"

#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "analysis/model/replay/tiles/tile_memory.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kPage = PageTable::kPageBytes;
constexpr std::int64_t kPlaces = 1 << 15;

TEST_CASE("every page has a place of its own, the same whenever it is asked for, another in another layout") {
  PageTable table(3), same(3), other(4);
  std::set<std::int64_t> places;
  std::int64_t shared_with_other = 0;
  constexpr std::int64_t kPages = 1000;
  for (std::int64_t page = 0; page < kPages; ++page) {
    const std::int64_t place = table.place_of(page);
    CHECK(place >= 0);
    CHECK(place < kPlaces);
    places.insert(place);
    CHECK(same.place_of(page) == place);
    shared_with_other += other.place_of(page) == place;
  }
  CHECK(places.size() == kPages);
  CHECK(table.place_of(7) == same.place_of(7));
  CHECK(shared_with_other < 5);
}

TEST_CASE("tensors larger than the memory get more of it") {
  PageTable table(0);
  std::set<std::int64_t> places;
  for (std::int64_t page = 0; page < 2 * kPlaces; ++page) places.insert(table.place_of(page));
  CHECK(places.size() == 2 * kPlaces);
}

TEST_CASE("bytes are cut where pages end, and none is lost") {
  PageTable table(0);
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  table.for_each_piece(kPage - 100, 200 + kPage, [&](std::int64_t address, std::int64_t bytes) {
    pieces.emplace_back(address, bytes);
  });
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0] == std::pair{table.place_of(0) * kPage + kPage - 100, std::int64_t{100}});
  CHECK(pieces[1] == std::pair{table.place_of(1) * kPage, kPage});
  CHECK(pieces[2] == std::pair{table.place_of(2) * kPage, std::int64_t{100}});
}

TEST_CASE("the runs of tiles stay in their pages, and cover at random places what they cover in one piece") {
  AttentionProblem p;
  p.heads = p.heads_kv = 3;
  p.seqlen_q = p.seqlen_k = 5000;  // a head of K and V is no whole number of pages
  p.head_dim = 96;
  p.dtype = ElementType::fp16;
  const TileProgram program =
      build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({128, 96})).front();
  TileMemory contiguous(program), at_random(program, 1);
  std::int64_t bytes_in_one = 0, bytes_at_random = 0, runs_in_one = 0, runs_at_random = 0;
  std::set<std::int64_t> starts;
  for (int head = 0; head < 3; ++head) {
    for (int n_block = 0; n_block < ceil_div(5000, 96); ++n_block) {
      const AccessGroup group{.operands = {}, .head = head, .n_block = n_block};
      contiguous.for_each_run(TensorName::k, group, [&](std::int64_t, std::int64_t bytes) {
        bytes_in_one += bytes;
        ++runs_in_one;
      });
      at_random.for_each_run(TensorName::k, group, [&](std::int64_t address, std::int64_t bytes) {
        CHECK(address / kPage == (address + bytes - 1) / kPage);
        starts.insert(address);
        bytes_at_random += bytes;
        ++runs_at_random;
      });
    }
  }
  CHECK(bytes_in_one == tensor_extent(p, TensorName::k).bytes());
  CHECK(bytes_at_random == bytes_in_one);
  CHECK(runs_at_random == runs_in_one + 1);  // two pages, whose border lies inside a tile
  CHECK(starts.size() == static_cast<std::size_t>(runs_at_random));
}

}  // namespace
}  // namespace tilescope
