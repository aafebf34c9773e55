// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/advice/advice.hpp"

#include <doctest/doctest.h>

#include "analysis/model/counts/direction_total.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

AttentionProblem causal_problem() {
  return {.batch = 1,
          .heads = 8,
          .heads_kv = 2,
          .seqlen_q = 2048,
          .seqlen_k = 2048,
          .head_dim = 64,
          .dtype = ElementType::fp16,
          .causal = true};
}

Advice advice_for(const char* name, ProgramOptions own, const Machine& machine) {
  return advise(find_kernel(name), causal_problem(), Direction::forward, own, machine, {.replay = false});
}

double predicted(const RunEntry& run) {
  return direction_total(run, Direction::forward).value().predicted.value().seconds;
}

}  // namespace

TEST_CASE("a poor choice of one's own is told a better one and the runner-up") {
  const Kernel& kernel = find_kernel("gpu:flash2-mma");
  ProgramOptions own = kernel.default_options(causal_problem());
  own.set_tile(Direction::forward, {64, 256});
  const Advice advice = advice_for("gpu:flash2-mma", own, load_machine("h200"));
  CHECK(advice.predicted);
  CHECK(advice.tried > 20);
  REQUIRE(advice.best.size() == 2);
  CHECK(advice.own.passes.front().tile == TileShape{64, 256});
  CHECK(predicted(advice.best[0]) < predicted(advice.own));
  CHECK(advice.best[0].passes.front().tile != advice.own.passes.front().tile);
  CHECK(predicted(advice.best[0]) <= predicted(advice.best[1]));
}

TEST_CASE("choices are the kernel's own first, and none that it refuses") {
  const Kernel& kernel = find_kernel("gpu:flash3");
  const AttentionProblem problem = causal_problem();
  const ProgramOptions own = kernel.default_options(problem);
  const auto choices = choices_of(kernel, problem, Direction::backward, own);
  CHECK(choices.front() == own);
  bool shared = false;
  for (const ProgramOptions& options : choices) {
    CHECK_FALSE(kernel.refusal(problem, Direction::backward, options));
    shared = shared || options.query_splits != own.query_splits;
  }
  CHECK(shared);
}

TEST_CASE("a kernel of unknown structure is ranked by its bound") {
  const Kernel& kernel = find_kernel("cpu:flash2");
  const Machine machine = load_machine("h200");
  const Advice advice = advice_for("cpu:flash2", kernel.default_options(causal_problem()), machine);
  CHECK_FALSE(advice.predicted);
  CHECK(bound_seconds(advice.best.front(), Direction::forward, machine) <=
        bound_seconds(advice.own, Direction::forward, machine));
}

TEST_CASE("of choices that take the same time, the one that moves less is the best") {
  ProgramOptions own = find_kernel("cpu:flash2").default_options(causal_problem());
  own.set_tile(Direction::forward, {64, 64});  // limited by the arithmetic, as larger tiles are
  const Machine machine = load_machine("h200");
  const Advice advice = advice_for("cpu:flash2", own, machine);
  CHECK(bound_seconds(advice.best.front(), Direction::forward, machine) ==
        doctest::Approx(bound_seconds(advice.own, Direction::forward, machine)));
  const auto moved = [](const RunEntry& run) {
    return direction_total(run, Direction::forward).value().closed_form->sm_l2_bytes();
  };
  CHECK(moved(advice.best[0]) <= moved(advice.best[1]));
  CHECK(moved(advice.best[0]) < moved(advice.own));
}

TEST_CASE("K and V fit the L2 by their bytes") {
  constexpr std::int64_t kOneAndAHalf = 3 * 2048 * 64 * 2;
  const KvInL2 kv = kv_in_l2(causal_problem(), kOneAndAHalf);
  CHECK(kv.head_bytes == 2 * 2048 * 64 * 2);
  CHECK(kv.heads == 2);
  CHECK(kv.heads_that_fit() == 1);
}

}  // namespace tilescope
