// SPDX-License-Identifier: Apache-2.0
// The numerical gradient check of the tile library's tests, on every CPU kernel.
#include <doctest/doctest.h>

#include <cmath>

#include "common/errors.hpp"
#include "cpu_ref/judge/gradient_check.hpp"

namespace tilescope {
namespace {

const AttentionProblem kProblems[] = {
    {.heads = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 16},
    {.heads = 2, .heads_kv = 1, .seqlen_q = 33, .seqlen_k = 57, .head_dim = 24, .causal = true},
    {.heads = 1,
     .heads_kv = 1,
     .seqlen_q = 64,
     .seqlen_k = 64,
     .head_dim = 8,
     .window_left = 9,
     .dropout = 0.2},
    {.batch = 2, .seqlen_q = 19, .seqlen_k = 1, .head_dim = 5},
};

TEST_CASE("gradients of every CPU kernel agree with central differences of its own forward pass") {
  for (const Kernel& kernel : cpu_kernels()) {
    for (const AttentionProblem& problem : kProblems) {
      ProgramOptions options = kernel.default_options(problem);
      options.set_tile({16, 24});
      for (const BackwardOrder order : kernel.backward_orders.empty()
                                           ? std::vector<BackwardOrder>{options.backward}
                                           : kernel.backward_orders) {
        options.backward = order;
        if (kernel.refusal(problem, Direction::backward, options)) continue;
        CAPTURE(kernel.name);
        CAPTURE(to_string(order));
        CAPTURE(describe(problem));
        for (const GradientCheck& check : check_gradients(kernel, problem, options)) {
          CAPTURE(to_string(check.gradient));
          CAPTURE(check.by_gradient);
          CAPTURE(check.by_difference);
          CHECK(check.passed());
        }
      }
    }
  }
}

template <TensorName gradient>
void run_scaled(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                TileObserver* observer) {
  cpu_kernels().back().run(options, direction, tensors, observer);
  if (direction == Direction::forward) return;
  Tensor& damaged = tensors[gradient];
  for (std::int64_t i = 0; i < damaged.shape().elements(); ++i) damaged.set(i, 1.01f * damaged.get(i));
}

TEST_CASE("a gradient that is one per cent too long is seen") {
  Kernel wrong = cpu_kernels().back();
  const AttentionProblem& problem = kProblems[0];
  for (const auto& damage : {std::pair{&run_scaled<TensorName::dq>, TensorName::dq},
                             {&run_scaled<TensorName::dk>, TensorName::dk},
                             {&run_scaled<TensorName::dv>, TensorName::dv}}) {
    const auto& [run, damaged] = damage;
    wrong.run = run;
    CAPTURE(to_string(damage.second));
    for (const GradientCheck& check : check_gradients(wrong, problem, wrong.default_options(problem))) {
      CAPTURE(to_string(check.gradient));
      CHECK(check.passed() == (check.gradient != damaged));
    }
  }
}

TEST_CASE("a gradient that is not a number is seen, and other types are refused") {
  CHECK_FALSE(GradientCheck{.by_gradient = std::nan(""), .bound = 1}.passed());
  CHECK_THROWS_AS(check_gradients(cpu_kernels().back(), {.dtype = ElementType::fp16}, {}), BadInput);
}

}  // namespace
}  // namespace tilescope
