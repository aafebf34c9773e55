// SPDX-License-Identifier: Apache-2.0
// Pages of keys and values: which keys a page has, and what a kernel asks of the table.
#include "cpu_ref/schedule/kv_pages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/schedule/kv_page_rows.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

using enum TensorName;

AttentionProblem two_sequences(std::int64_t page_size) {
  return {.batch = 2,
          .heads = 4,
          .heads_kv = 2,
          .seqlen_q = 3,
          .seqlen_k = 300,
          .head_dim = 16,
          .dtype = ElementType::fp16,
          .seed = 5,
          .key_lengths = {300, 70},
          .page_size = page_size};
}

TEST_CASE("each page of a pool has the keys of one batch entry, some belong to nobody, none to the padding") {
  const KvPageTable table = draw_kv_pages(two_sequences(16));
  CHECK(table.row == 24);  // 19 pages, in whole sectors
  std::set<int> taken;
  for (const int entry : table.entries) {
    if (entry == KvPageTable::kNoPage) continue;
    CHECK(entry < table.pool);
    CHECK(taken.insert(entry).second);
  }
  CHECK(taken.size() == 19 + 5);
  CHECK(table.pool == 24 + 6);
  CHECK(!std::is_sorted(table.entries.begin(), table.entries.begin() + 19));
  CHECK(table.page_of(1, 69) == table.entries[24 + 4]);
  CHECK(table.entries[24 + 5] == KvPageTable::kNoPage);
}

TEST_CASE("a table in whole sectors has the same pages, and none behind them") {
  const KvPageTable table{
      .page_size = 16, .row = 3, .pool = 9, .entries = {4, 2, 7, 0, 8, KvPageTable::kNoPage}};
  const KvPageTable whole = in_whole_sectors(table);
  CHECK(whole.row == 8);
  REQUIRE(whole.entries.size() == 16);
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    for (std::int64_t key = 0; key < 48; ++key) CHECK(whole.page_of(batch, key) == table.page_of(batch, key));
    CHECK(whole.page_of(batch, 48) == KvPageTable::kNoPage);
  }
  CHECK(in_whole_sectors(whole).entries == whole.entries);
}

TEST_CASE("pages, in whatever order, leave every kernel's results as they are without") {
  for (const Kernel& kernel : cpu_kernels()) {
    const auto results = [&kernel](std::int64_t page_size, std::uint64_t order) {
      AttentionProblem problem = two_sequences(page_size);
      TensorSet tensors(problem);
      fill_random_inputs(tensors, Direction::forward);
      problem.seed = order;
      if (page_size > 0) tensors.lay_out_in_pages(draw_kv_pages(problem));
      for (const TensorName name : {k, v}) {  // which nobody may read but in pages
        if (page_size > 0) tensors[name].poison();
      }
      kernel.run(kernel.default_options(problem), Direction::forward, tensors, nullptr);
      return std::pair(std::move(tensors[out]), std::move(tensors[lse]));
    };
    const auto expected = results(0, 0);
    for (const std::int64_t page_size : {8, 128, 512}) {
      for (const std::uint64_t order : {1, 2}) {
        CAPTURE(page_size);
        CAPTURE(kernel.name);
        const auto paged = results(page_size, order);
        CHECK(std::memcmp(paged.first.data(), expected.first.data(),
                          static_cast<std::size_t>(expected.first.bytes())) == 0);
        CHECK(std::memcmp(paged.second.data(), expected.second.data(),
                          static_cast<std::size_t>(expected.second.bytes())) == 0);
      }
    }
  }
}

/// Sectors of the table behind the keys of each tile of K or V that the CTAs load, a tile of both once.
std::int64_t asked_sectors(const TileProgram& program, const KvPageTable& table) {
  std::int64_t sectors = 0;
  const bool each_operand = program.page_lookups.each_operand;
  const int part_keys = program.tile.block_n / program.page_lookups.parts;
  const auto add_tile = [&](const CtaWork& work, int tile, std::int64_t times) {
    std::set<std::pair<std::int64_t, std::int64_t>> asked;  // by which part, and which sector
    const std::int64_t first = std::int64_t{tile} * program.tile.block_n;
    const std::int64_t end = std::min(first + program.tile.block_n, program.problem.keys_of(work.batch));
    for (std::int64_t key = first; key < end; ++key) {
      const std::int64_t entry = work.batch * table.row + key / table.page_size;
      asked.emplace((key - first) / part_keys, entry * 4 / kSectorBytes);
    }
    sectors += times * static_cast<std::int64_t>(asked.size());
  };
  const auto loads = [each_operand](const std::vector<Operand>& operands) -> std::int64_t {
    const auto paged = std::ranges::count_if(
        operands, [](const Operand& each) { return each.tensor == k || each.tensor == v; });
    return each_operand || paged == 0 ? paged : 1;
  };
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    const CtaWork work = program.work(cta);
    for (int block = work.first_block; block < work.end_block; ++block) {
      if (program.has_prologue(work, block)) add_tile(work, block, loads(program.prologue));
      for (const auto& phase : program.phases) {
        const TileRuns tiles = program.inner_tiles(work, block);
        for (int i = 0; i < tiles.count(); ++i) add_tile(work, tiles[i], loads(phase));
      }
    }
  }
  return sectors;
}

TEST_CASE("a program asks for the entries of each tile's keys, as often as a CTA loads the tile") {
  testing::ProblemGenerator random(20261126);
  for (int i = 0; i < 60; ++i) {
    const TileShape tile = random.tile(40);
    AttentionProblem problem = random.masked(random.problem(tile));
    if (random.chance(0.5)) problem = random.padded(problem);
    problem.page_size = std::int64_t{8} << random.between(0, 4);
    const KvPageTable table = draw_kv_pages(problem);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.page_lookups = {.parts = tile.block_n % 2 == 0 ? random.between(1, 2) : 1,
                            .each_operand = random.chance(0.5)};
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      if (algorithm == Algorithm::flash2 && random.chance(0.5)) {
        options.splits = {SplitPolicy::Kind::number, random.between(2, 5)};
        options.pack_gqa = random.chance(0.5);
      }
      for (const TileProgram& program : build_programs(algorithm, Direction::forward, problem, options)) {
        CAPTURE(i);
        CAPTURE(describe(problem));
        CAPTURE(to_string(program.name));
        CHECK(page_words(program).asked == asked_sectors(program, table));
        CHECK(program.words.pass.asked == asked_sectors(program, table));
      }
    }
  }
}

TEST_CASE("a tile is looked up in parts that divide its keys") {
  ProgramOptions options = ProgramOptions::with_tile({16, 24});
  options.page_lookups.parts = 5;
  CHECK_THROWS_AS(build_programs(Algorithm::flash2, Direction::forward, two_sequences(16), options),
                  std::logic_error);
  options.page_lookups.parts = 3;
  CHECK_NOTHROW(build_programs(Algorithm::flash2, Direction::forward, two_sequences(16), options));
}

TEST_CASE("sizes of pages are powers of 2 in a range, and a backward pass takes none") {
  for (const std::int64_t bad : {-1, 1, 4, 12, 8192}) {
    CHECK_THROWS_WITH_AS(validate(two_sequences(bad)),
                         doctest::Contains("must be a power of 2 in 8 ... 4096"), BadInput);
  }
  for (const Kernel& kernel : cpu_kernels()) {
    CHECK(missing_feature(kernel.can, two_sequences(16), Direction::backward));
    CHECK(!missing_feature(kernel.can, two_sequences(16), Direction::forward));
  }
}

}  // namespace
}  // namespace tilescope
