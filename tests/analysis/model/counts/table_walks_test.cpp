// SPDX-License-Identifier: Apache-2.0
// The bytes of a kernel that walks tables of visited tiles: by formula, by replay, and access by access.
#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kRandomWalks = 40;

/// Sectors that one CTA asks of its tables.
std::int64_t table_sectors(const TileProgram& program, std::int64_t cta) {
  const CtaWork work = program.work(cta);
  const TileRuns visited = program.inner_tiles(work, work.first_block);
  std::int64_t of_head = 0;
  for (int step = 0; step < visited.count(); ++step) {
    const bool full = visited.full(visited[step]);
    of_head += 1 + (full ? 0 : program.bit_reads * program.tile.block_m * program.tile.block_n / 8 / 32);
  }
  return 1 + of_head * (work.end_head - work.first_head);
}

/// What is read, access by access; of numbers of heads, a sector for each.
std::int64_t walked_reads(const TileProgram& program) {
  std::int64_t bytes = 0;
  for_each_access(program, [&](const TileAccess& access) {
    if (access.kind != AccessKind::load) return;
    const bool numbers = access.tensor == TensorName::alibi_slopes || access.tensor == TensorName::sink;
    bytes += numbers ? access.bytes / 4 * 32 : access.bytes + access.filled_bytes;
  });
  for (std::int64_t cta = 0; program.bit_reads > 0 && cta < program.num_ctas(); ++cta) {
    bytes += 32 * table_sectors(program, cta);
  }
  return bytes;
}

TEST_CASE("gpu:flash2-mma's bytes with masks and modifiers are those of its tiles, tables and sectors") {
  testing::ProblemGenerator random(37);
  const Kernel& kernel = find_kernel("gpu:flash2-mma");
  for (int i = 0; i < kRandomWalks; ++i) {
    AttentionProblem problem = random.modified(random.masked(random.problem({128, 64})));
    problem.dtype = ElementType::fp16;
    CAPTURE(describe(problem));
    const bool rare = problem.mask.any() || problem.score_mods.any();
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const ProgramOptions options = kernel.default_options(problem);
      REQUIRE_FALSE(kernel.refusal(problem, direction, options).has_value());
      for (const TileProgram& program : kernel.programs(direction, problem, options)) {
        CHECK((program.bit_reads > 0) == (rare && !program.phases.empty()));
        const std::int64_t reads = closed_form_bytes(program).sm_l2_read_bytes;
        CHECK(reads == walked_reads(program));
        CHECK(simulate_pass(program, {}).sm_l2_read_bytes() == reads);
      }
    }
  }
}

/// What has an instance of tables, if it has a mask.
AttentionProblem with_tables(testing::ProblemGenerator& random, int i) {
  AttentionProblem problem = random.masked(random.problem({128, 128}));
  problem.dtype = i % 2 == 0 ? ElementType::fp16 : ElementType::bf16;
  problem.head_dim = 8 * random.between(1, 16);
  return problem;
}

/// Reads are those of its tiles and 32 bytes for each sector of the tables.
void check_bytes_of_tables(const TileProgram& program) {
  std::int64_t words = 0;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) words += table_sectors(program, cta);
  TileProgram of_tiles = program;
  of_tiles.words.pass.asked -= words;
  const std::int64_t reads = closed_form_bytes(program).sm_l2_read_bytes;
  CHECK(reads - closed_form_bytes(of_tiles).sm_l2_read_bytes == 32 * words);
  CHECK(simulate_pass(program, {}).sm_l2_read_bytes() == reads);
}

TEST_CASE(
    "gpu:flash3's bytes with masks of runs are those of its tiles and tables, whatever the tile's end") {
  testing::ProblemGenerator random(39);
  const Kernel& kernel = find_kernel("gpu:flash3");
  for (int i = 0; i < kRandomWalks; ++i) {
    const AttentionProblem problem = with_tables(random, i);
    if (!problem.mask.any()) continue;
    CAPTURE(describe(problem));
    const ProgramOptions options = kernel.default_options(problem);
    REQUIRE_FALSE(kernel.refusal(problem, Direction::forward, options).has_value());
    const TileProgram program = kernel.programs(Direction::forward, problem, options).front();
    CHECK(program.bit_reads == 1);
    CHECK(program.tile == TileShape{128, 128});
    check_bytes_of_tables(program);
  }
}

TEST_CASE("gpu:flash3's backward bytes with masks of runs are those of its tiles and tables, shared or not") {
  testing::ProblemGenerator random(43);
  const Kernel& kernel = find_kernel("gpu:flash3");
  for (int i = 0; i < kRandomWalks; ++i) {
    AttentionProblem problem = with_tables(random, i);
    problem.dropout = 0;
    if (!problem.mask.any()) continue;
    CAPTURE(describe(problem));
    ProgramOptions options = kernel.default_options(problem);
    options.query_splits = i % 3 + 1;
    if (kernel.refusal(problem, Direction::backward, options)) options.query_splits = 1;
    REQUIRE_FALSE(kernel.refusal(problem, Direction::backward, options).has_value());
    for (const TileProgram& program : kernel.programs(Direction::backward, problem, options)) {
      CHECK(program.bit_reads == (program.name == PassName::dkdvdq ? 1 : 0));
      if (program.bit_reads == 0) continue;
      CHECK(program.dq_start == DqStart::cleared);
      check_bytes_of_tables(program);
    }
  }
}

TEST_CASE("gpu:flash3's bytes with modifiers are those of its tiles and a sector a head's number") {
  testing::ProblemGenerator random(41);
  const Kernel& kernel = find_kernel("gpu:flash3");
  for (int i = 0; i < kRandomWalks; ++i) {
    AttentionProblem problem = random.modified(random.problem({128, 128}));
    problem.score_mods.log_bias = 0;
    problem.dtype = i % 2 == 0 ? ElementType::fp16 : ElementType::bf16;
    problem.head_dim = 8 * random.between(1, 32);
    problem.dropout = 0;
    if (!problem.score_mods.any()) continue;
    CAPTURE(describe(problem));
    const ProgramOptions options = kernel.default_options(problem);
    REQUIRE_FALSE(kernel.refusal(problem, Direction::forward, options).has_value());
    const TileProgram program = kernel.programs(Direction::forward, problem, options).front();
    CHECK((program.bit_reads > 0) == (problem.score_mods.softcap > 0 && problem.head_dim <= 64));
    std::int64_t numbers = 0;  // of heads, each by an item
    for_each_access(program, [&](const TileAccess& access) {
      const bool of_head = access.tensor == TensorName::alibi_slopes || access.tensor == TensorName::sink;
      if (of_head) numbers += access.bytes + access.filled_bytes - kSectorBytes;
    });
    CHECK(numbers == 0);
    const std::int64_t reads = closed_form_bytes(program).sm_l2_read_bytes;
    CHECK(simulate_pass(program, {}).sm_l2_read_bytes() == reads);
  }
}

TEST_CASE("a problem without masks of runs and modifiers walks no tables, and has the tiles that it had") {
  const Kernel& kernel = find_kernel("gpu:flash2-mma");
  AttentionProblem problem{.heads = 2, .heads_kv = 2, .seqlen_q = 512, .seqlen_k = 512, .causal = true};
  problem.dtype = ElementType::fp16;
  const auto forward = [&] {
    return kernel.programs(Direction::forward, problem, kernel.default_options(problem)).front();
  };
  CHECK(forward().bit_reads == 0);
  CHECK(forward().boxes.empty());
  CHECK(forward().tile == TileShape{128, 128});
  problem.score_mods.softcap = 50;
  CHECK(forward().bit_reads == 1);
  CHECK(forward().tile == TileShape{128, 64});
}

}  // namespace
}  // namespace tilescope
