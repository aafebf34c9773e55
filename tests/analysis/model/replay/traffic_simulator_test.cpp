// SPDX-License-Identifier: Apache-2.0
// One replay must tell what a direct simulation of each cache size tells, and meet the closed forms at both
// ends.
#include "analysis/model/replay/traffic_simulator.hpp"

#include <doctest/doctest.h>

#include <list>
#include <map>
#include <set>
#include <tuple>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/cache/reuse_stack.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/analysis/model/replay/replayed_programs.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

/// An LRU cache of one size, as one would write it without thinking of others.
class DirectCache {
 public:
  explicit DirectCache(std::int64_t capacity) : capacity_(capacity) {}

  void access(const TileAccess& access) {
    const Key key{access.tensor, access.batch, access.head, access.m_block, access.n_block};
    const auto found = places_.find(key);
    Line line{key, access.bytes, false};
    if (found != places_.end()) {
      line = *found->second;
      lines_.erase(found->second);
      used_ -= line.bytes;
    } else if (access.kind != AccessKind::store &&
               (access.kind != AccessKind::store_then_reduce || seen_.contains(key))) {
      read_bytes += access.bytes;
    }
    seen_.insert(key);
    line.dirty = line.dirty || access.kind != AccessKind::load;
    lines_.push_front(line);
    places_[key] = lines_.begin();
    used_ += line.bytes;
    while (used_ > capacity_) evict();
  }
  void flush() {
    while (!lines_.empty()) evict();
  }

  std::int64_t read_bytes = 0, write_bytes = 0;

 private:
  using Key = std::tuple<TensorName, int, int, int, int>;
  std::set<Key> seen_;
  struct Line {
    Key key;
    std::int64_t bytes;
    bool dirty;
  };
  void evict() {
    const Line line = lines_.back();
    if (line.dirty) write_bytes += line.bytes;
    used_ -= line.bytes;
    places_.erase(line.key);
    lines_.pop_back();
  }

  std::int64_t capacity_, used_ = 0;
  std::list<Line> lines_;  // most recent first
  std::map<Key, std::list<Line>::iterator> places_;
};

/// The accesses of `ctas` CTAs in step, each replaced when it retires.
std::vector<TileAccess> interleaved(const TileProgram& program, std::int64_t ctas) {
  std::vector<TileAccess> all;
  AccessGroup group;
  std::vector<CtaWalk> running;
  std::int64_t next = 0;
  while (next < program.num_ctas() && next < ctas) running.emplace_back(program, next++);
  while (!running.empty()) {
    for (auto walk = running.begin(); walk != running.end();) {
      while (!walk->next(group) && next < program.num_ctas()) *walk = CtaWalk(program, next++);
      if (group.operands.empty()) {
        walk = running.erase(walk);
        continue;
      }
      for (const Operand& operand : group.operands) {
        all.push_back(program.access(operand, group.batch, group.head, group.m_block, group.n_block));
      }
      ++walk;
    }
  }
  return all;
}

TEST_CASE("a replay equals a direct LRU simulation at every size, and the closed forms at both ends") {
  constexpr int kRandomProblems = 120;
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = 1 + static_cast<int>(seed) % 3;
    const TileShape tile = random.tile_of_slices(slices, 16 / slices);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[random.between(0, 4)];
    if (slices == 1 && seed % 2 == 0) p = random.masked(p);
    ProgramOptions options = testing::random_options(random, tile);
    options.diagonal_slices = slices;
    testing::draw_splits(options, tile, random);
    const int ctas = random.between(1, 9);
    if (seed % 2 == 0) p = random.modified(p);
    if (seed % 4 == 3) p = random.with_value_dim(p);
    CAPTURE(seed);
    CAPTURE(describe(p));
    CAPTURE(tile.block_m);
    CAPTURE(tile.block_n);
    CAPTURE(ctas);
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program : testing::programs_of(choice, p, options)) {
        CAPTURE(to_string(choice.algorithm));
        CAPTURE(to_string(program.name));
        int retired = 0;
        const PassTraffic traffic = simulate_pass(program, {ctas}, [&] { ++retired; });
        CHECK(retired == program.num_ctas());
        const ClosedFormBytes closed = closed_form_bytes(program);
        CHECK(traffic.sm_l2_read_bytes() == closed.sm_l2_read_bytes);
        CHECK(traffic.sm_l2_write_bytes() == closed.sm_l2_write_bytes);
        CHECK(traffic.dram_read_bytes(kInfinite) == closed.compulsory_read_bytes);
        CHECK(traffic.dram_write_bytes(kInfinite) == closed.compulsory_write_bytes);
        CHECK(traffic.dram_read_bytes(0) == closed.sm_l2_read_bytes + traffic.reduce_bytes);
        CHECK(traffic.dram_write_bytes(0) == closed.sm_l2_write_bytes);

        const std::vector<TileAccess> accesses = interleaved(program, ctas);
        REQUIRE(static_cast<std::int64_t>(accesses.size()) == traffic.accesses);
        std::int64_t largest = 1;
        for (const ReusePoint& point : traffic.histogram) largest = std::max(largest, point.distance_bytes);
        std::vector<std::int64_t> sizes = {1, largest - 1, largest};
        for (int i = 0; i < 4; ++i) sizes.push_back(random.between(1, static_cast<int>(largest)));
        for (const std::int64_t size : sizes) {
          CAPTURE(size);
          DirectCache cache(size);
          for (const TileAccess& access : accesses) cache.access(access);
          cache.flush();
          CHECK(traffic.dram_read_bytes(size) == cache.read_bytes);
          CHECK(traffic.dram_write_bytes(size) == cache.write_bytes);
        }
      }
    }
  }
}

TEST_CASE("a larger L2 never moves more, and its hit rate lies between 0 and 1") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile();
    const AttentionProblem p = random.problem(tile);
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program :
           testing::programs_of(choice, p, testing::random_options(random, tile))) {
        const PassTraffic traffic =
            simulate_pass(program, {.co_resident_ctas = random.between(1, 40),
                                    .progress = {.clock_cv = 0.05 * random.between(0, 2)},
                                    .sm_groups = {{3, 0}, {2, 0}}});
        std::int64_t reads = traffic.dram_read_bytes(0), writes = traffic.dram_write_bytes(0);
        for (const ReusePoint& point : traffic.histogram) {
          CHECK(traffic.dram_read_bytes(point.distance_bytes) <= reads);
          CHECK(traffic.dram_write_bytes(point.distance_bytes) <= writes);
          reads = traffic.dram_read_bytes(point.distance_bytes);
          writes = traffic.dram_write_bytes(point.distance_bytes);
          CHECK(traffic.hit_rate(reads) >= 0);
          CHECK(traffic.hit_rate(reads) <= 1);
        }
      }
    }
  }
}

TEST_CASE("stack distances equal those of a list, through many compactions") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    // More tiles than half the first timeline in some rounds, so that it doubles too.
    const int tiles = seed % 2 == 0 ? 60 : 5000;
    ReuseStack stack(static_cast<std::uint32_t>(tiles));
    std::list<int> list;
    const auto size_of = [](int tile) { return 1 + tile % 7; };
    for (int touch = 0; touch < 12000; ++touch) {
      const int tile = random.between(0, tiles - 1);
      std::int64_t distance = 0;
      auto place = list.begin();
      for (; place != list.end(); ++place) {
        distance += size_of(*place);
        if (*place == tile) break;
      }
      if (place == list.end()) distance = ReuseStack::kNever;
      REQUIRE(stack.touch(static_cast<std::uint32_t>(tile), size_of(tile)) == distance);
      if (place != list.end()) list.erase(place);
      list.push_front(tile);
    }
  }
}

TEST_CASE("co-residency follows the machine's SMs and the program's shared memory") {
  const Machine h200 = load_machine("h200");
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 4096;
  p.head_dim = 128;
  p.dtype = ElementType::fp16;
  const auto resident = [&](TileShape tile) {
    const auto programs =
        build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile(tile));
    return co_resident_ctas(programs.front(), h200);
  };
  CHECK(resident({128, 64}) == 132 * 2);   // 32 KiB of Q, 2 stages of 32 KiB of K and V
  CHECK(resident({128, 128}) == 132 * 1);  // 160 KiB
}

}  // namespace
}  // namespace tilescope
