// SPDX-License-Identifier: Apache-2.0
// How CTAs come by their blocks, and who waits for whose sums.
#include <doctest/doctest.h>

#include <map>
#include <tuple>
#include <vector>

#include "analysis/model/replay/ctas/cta_schedule.hpp"

namespace tilescope {
namespace {

constexpr int kRows = 16;

AttentionProblem problem_of(int q_tiles, int kv_tiles, bool causal) {
  return {.heads = 4,
          .heads_kv = 1,
          .seqlen_q = kRows * q_tiles,
          .seqlen_k = kRows * kv_tiles,
          .head_dim = 16,
          .causal = causal};
}

TileProgram pass(PassName name, const AttentionProblem& problem, ProgramOptions options) {
  options.set_tile({kRows, kRows});
  const Direction direction = name == PassName::forward ? Direction::forward : Direction::backward;
  for (const TileProgram& program : build_programs(Algorithm::flash2, direction, problem, options)) {
    if (program.name == name) return program;
  }
  FAIL("no such pass");
  return {};
}

/// Owned blocks in the order in which they are begun.
std::vector<int> begun(const TileProgram& program, std::int64_t slots) {
  CoResidentCtas ctas(program, {.co_resident_ctas = slots}, {});
  std::vector<int> blocks;
  CtaRun run;
  while (ctas.next(run)) {
    if (run.group.operands.data() != program.prologue.data()) continue;
    for (int cta = 0; cta < run.ctas; ++cta) {
      const AccessGroup its = run.group_of(cta, program.axis);
      blocks.push_back(program.axis == Axis::q ? its.m_block : its.n_block);
    }
  }
  return blocks;
}

TEST_CASE("CTAs that stay take the next block as those that retire do") {
  AttentionProblem problem = problem_of(5, 5, true);
  problem.heads = 1;
  ProgramOptions options;
  options.order = TileOrder::longest_first;
  CHECK(begun(pass(PassName::forward, problem, options), 2) == std::vector<int>{4, 3, 2, 1, 0});
  options.work_counter = true;
  CHECK(begun(pass(PassName::forward, problem, options), 2) == std::vector<int>{4, 3, 2, 1, 0});
}

TEST_CASE("CTAs that stay take blocks there and back") {
  ProgramOptions options;
  options.backward = BackwardOrder::fused;
  options.dq_start = DqStart::claimed;
  CHECK(begun(pass(PassName::dkdvdq, problem_of(2, 8, false), options), 3) ==
        std::vector<int>{0, 1, 2, 5, 4, 3, 6, 7});
}

/// Additions to a sum that come before the first kv tile's, and out of order, when SMs differ.
std::pair<int, int> early_and_unordered(const TileProgram& program, std::size_t launch) {
  const CtaSchedule schedule{.co_resident_ctas = 6,
                             .progress = {.tpc_cv = 0.5, .clock_cv = 0.5},
                             .sm_groups = {{2, 0}, {2, 1}, {2, 0}},
                             .launch = launch};
  CoResidentCtas ctas(program, schedule, {});
  std::map<std::tuple<int, int>, int> last;
  int early = 0, unordered = 0;
  CtaRun run;
  while (ctas.next(run)) {
    if (run.group.operands.data() != program.phases[0].data()) continue;
    for (int cta = 0; cta < run.ctas; ++cta) {
      const AccessGroup its = run.group_of(cta, program.axis);
      const auto [sum, is_first] = last.try_emplace({its.head, its.m_block}, its.n_block);
      early += is_first && its.n_block != 0;
      unordered += !is_first && sum->second + 1 != its.n_block;
      sum->second = its.n_block;
    }
  }
  return {early, unordered};
}

std::pair<int, int> early_and_unordered(const TileProgram& program) {
  std::pair<int, int> sum{0, 0};
  for (std::size_t launch = 0; launch < 4; ++launch) {
    const auto [early, unordered] = early_and_unordered(program, launch);
    sum.first += early;
    sum.second += unordered;
  }
  return sum;
}

TEST_CASE("kv tiles wait for the first one's sums, and in an ordered pass for all in front of them") {
  for (const bool causal : {false, true}) {
    CAPTURE(causal);
    const AttentionProblem problem = problem_of(9, 9, causal);
    ProgramOptions options;
    options.backward = BackwardOrder::fused;
    const auto free = early_and_unordered(pass(PassName::dkdvdq, problem, options));
    CHECK(free.first > 0);
    options.dq_start = DqStart::in_order;
    const auto flagged = early_and_unordered(pass(PassName::dkdvdq, problem, options));
    CHECK(flagged.first == 0);
    CHECK(flagged.second > 0);
    options.backward = BackwardOrder::ordered;
    AttentionProblem one_head = problem;
    one_head.heads = 1;
    CHECK(early_and_unordered(pass(PassName::dkdvdq, one_head, options)).second > 0);  // slots of their own
    TileProgram ordered = pass(PassName::dkdvdq, problem, options);
    ordered.problem.head_dim = 1 << 20;  // too many bytes for that
    CHECK(early_and_unordered(ordered) == std::pair{0, 0});
  }
}

}  // namespace
}  // namespace tilescope
