// SPDX-License-Identifier: Apache-2.0
// CTAs of ordered backward passes: how many share a kv tile, and that each waits for CTAs in front alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "cpu_ref/schedule/sum_slots.hpp"
#include "gpu/kernels/flash3/choices.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "tests/random_problems.hpp"

using namespace tilescope;

namespace {

AttentionProblem problem_of(std::int64_t heads, std::int64_t heads_kv, std::int64_t seqlen_q,
                            std::int64_t seqlen_k, std::int64_t head_dim) {
  return {.heads = heads,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .dtype = ElementType::bf16};
}

TileProgram ordered_pass(const AttentionProblem& problem, ProgramOptions options) {
  options.backward = BackwardOrder::ordered;
  const auto programs = build_programs(Algorithm::flash2, Direction::backward, problem, options);
  const auto pass = std::find_if(programs.begin(), programs.end(),
                                 [](const TileProgram& program) { return program.name == PassName::dkdvdq; });
  REQUIRE(pass != programs.end());
  return *pass;
}

/// Whoever adds to the same slot of a q tile's dQ before a CTA was issued before it, else a full device could
/// wait for ever; and CTAs that share a kv tile have slots of their own.
void check_waits(const TileProgram& program) {
  const DqSlots slots = dq_slots(program);
  std::map<std::tuple<int, int, int, int>, int> added;
  std::map<std::tuple<int, int, int>, std::set<int>> sharers;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    const CtaWork work = program.work(cta);
    const int block = work.first_block, sum_slot = sum_slot_of(program, work);
    CHECK(sum_slot < program.query_splits());
    CHECK(sharers[{work.batch, work.kv_head, block}].insert(sum_slot).second);
    const TileRuns queries = program.inner_tiles(work, block);
    for (int head = work.first_head; head < work.end_head; ++head) {
      for (int i = 0; i < queries.count(); ++i) {
        const int before = program.kv_tiles_before(work.batch, queries[i], block);
        int& there = added[{work.batch, head, queries[i], slots.slot(before)}];
        CHECK(slots.slot(before) < slots.count);
        CHECK(there == slots.before_in_slot(before));
        ++there;
      }
    }
  }
}

}  // namespace

TEST_CASE("ordered passes wait for CTAs in front of them alone, in whatever order and with whatever splits") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile();
    const AttentionProblem problem = random.problem(tile);
    CAPTURE(seed);
    CAPTURE(describe(problem));
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.order = random.chance(0.5) ? TileOrder::row_major : TileOrder::head_swizzled;
    options.swizzled_heads = random.between(1, 4);
    options.set_query_splits(random.between(1, 7));
    options.ordered_swizzled_heads = random.chance(0.5) ? random.between(1, 9) : 0;
    options.ordered_shortest_first = options.ordered_swizzled_heads > 0 && random.chance(0.5);
    check_waits(ordered_pass(problem, options));
  }
}

TEST_CASE(
    "flash3's ordered pass keeps the device busy by heads side by side and by CTAs that share kv tiles") {
  // One q tile a head: each slot of it keeps one CTA busy, whatever its kv tiles.
  const AttentionProblem one_q_tile = problem_of(880, 880, 51, 44219, 96);
  const Flash3OrderedWay wide = flash3_ordered_way(one_q_tile);
  CHECK(wide.splits == 1);
  const int slots = dq_slots(one_q_tile, flash3_backward_shape(96, true).tile).count;
  CHECK(wide.swizzled_heads == 2 * ceil_div(kHopperMultiprocessors, slots));
  // Few kv tiles, which wait for nobody at other query heads and other queries.
  CHECK(flash3_ordered_way(problem_of(8, 1, 2211, 2211, 160)).splits > 1);
  // A head that fills the device by itself, and one beside it.
  const Flash3OrderedWay full = flash3_ordered_way(problem_of(16, 16, 20000, 20000, 128));
  CHECK(full.splits == 1);
  CHECK(full.swizzled_heads == 2);
  // A head a CTA would leave half of the device idle.
  CHECK(flash3_ordered_way(problem_of(2, 1, 4381, 4381, 96)).splits > 2);
  // Many kv tiles of few heads: a chain of all of them takes longer than sums of dK and dV.
  CHECK(flash3_ordered_way(problem_of(2, 1, 37878, 37878, 112)).splits > 1);
}

TEST_CASE("late kv tiles come first under a causal mask with groups, not in windows of long rows") {
  AttentionProblem problem = problem_of(36, 18, 5760, 5760, 160);
  problem.batch = 3;
  problem.causal = true;
  CHECK(flash3_ordered_way(problem).shortest_first);
  problem.causal = false;
  problem.window_left = 889;
  problem.window_right = 0;
  CHECK(!flash3_ordered_way(problem).shortest_first);
}
