// SPDX-License-Identifier: Apache-2.0
// What belongs to each CTA of a pass: the decoding that the CPU kernels, the simulator and the GPU kernels
// share.
#include <doctest/doctest.h>

#include <map>
#include <tuple>

#include "cpu_ref/schedule/tile_program.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

/// Calls visit(program) for every pass of every algorithm, direction and order.
template <typename Visit>
void for_each_program(const AttentionProblem& problem, ProgramOptions options, Visit&& visit) {
  for (Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
    for (Direction direction : {Direction::forward, Direction::backward}) {
      for (BackwardOrder order : {BackwardOrder::split, BackwardOrder::fused, BackwardOrder::q_outer}) {
        options.backward = order;
        for (const TileProgram& program : build_programs(algorithm, direction, problem, options)) {
          visit(program);
        }
      }
    }
  }
}

TEST_CASE("every block of every query head belongs to one CTA, which has its key/value head") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(12);
    const AttentionProblem problem = random.problem(tile);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.order = static_cast<TileOrder>(seed % 3);
    options.swizzled_heads = 1 + static_cast<int>(seed % 4);
    for_each_program(problem, options, [&](const TileProgram& program) {
      CAPTURE(seed);
      CAPTURE(describe(problem));
      CAPTURE(to_string(program.name));
      std::map<std::tuple<int, int, int>, int> owners;  // by batch, query head, block
      for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
        const CtaWork work = program.work(cta);
        CHECK(work.end_head - work.first_head == program.heads_per_cta());
        const std::int64_t heads = program.kv_heads ? problem.heads_kv : problem.heads;
        CHECK(work.batch_head == work.batch * heads + (program.kv_heads ? work.kv_head : work.first_head));
        for (int head = work.first_head; head < work.end_head; ++head) {
          CHECK(work.kv_head == head / problem.group_size());
          for (int block = work.first_block; block < work.end_block; ++block) {
            ++owners[{work.batch, head, block}];
          }
        }
      }
      for (int batch = 0; batch < problem.batch; ++batch) {
        for (int head = 0; head < problem.heads; ++head) {
          for (int block = 0; block < program.num_blocks(); ++block) {
            CHECK(owners[{batch, head, block}] == 1);
          }
        }
      }
      CHECK(static_cast<std::int64_t>(owners.size()) == problem.batch * problem.heads * program.num_blocks());
    });
  }
}

TEST_CASE("a 32-bit index, as GPU kernels have it, is decoded as a 64-bit one") {
  const Grid grid{.num_blocks = 7,
                  .num_heads = 12,
                  .swizzled_heads = 5,
                  .order = TileOrder::head_swizzled,
                  .last_block_first = true,
                  .ctas_per_wave = 4};
  for (CtaHeads counted : {CtaHeads::query, CtaHeads::kv}) {
    for (int index = 0; index < grid.size(); ++index) {
      const HeadCounts heads{6, 2};
      CHECK(cta_work(grid, heads, counted, 1, index) ==
            cta_work(grid, heads, counted, 1, std::int64_t{index}));
    }
  }
}

// Where kernels decode: two sequences of four query heads over two key/value heads, three tiles each.
constexpr Grid kGrid{.num_blocks = 3, .num_heads = 4};
static_assert(cta_work(kGrid, {4, 2}, CtaHeads::kv, 1, 10) == CtaWork{1, 3, 1, 2, 4, 1, 2, 0});
static_assert(cta_work(kGrid, {2, 1}, CtaHeads::query, 1, 10) == CtaWork{1, 3, 0, 1, 2, 1, 2, 0});

}  // namespace
}  // namespace tilescope
