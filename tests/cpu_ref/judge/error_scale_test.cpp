// SPDX-License-Identifier: Apache-2.0
// The sizes of terms and what their rounding costs, by hand.
#include "cpu_ref/judge/error_scale.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace tilescope {
namespace {

using enum TensorName;

TEST_CASE("what rounding costs, by hand") {
  const TermScale terms{.sum = 3, .by_probs = 5, .by_out = 7};
  const auto cost = [&](TensorName name) {
    const RoundingCost all = rounding_cost(terms, 6, 4, name);
    return std::vector{all.fp32, all.by_out, all.element};
  };
  CHECK(cost(out) == std::vector{2.0 * 3 + 5 * 5, 0.0, 7.0 * 3});
  CHECK(cost(lse) == std::vector{2.0 * 5, 0.0, 7.0});
  CHECK(cost(dq) == std::vector{3 + 2.0 * 5 * 5, 7.0, 7.0 * 3});
  CHECK(cost(dk) == cost(dq));
  CHECK(cost(dv) == std::vector{2.0 * 5 * 3, 0.0, 7.0 * 3});
}

TEST_CASE("the scale of errors by hand: two keys") {
  TensorSet inputs({.seqlen_k = 2, .head_dim = 1, .softmax_scale = -2.0});
  for (TensorName name : {q, k, v, dout}) inputs.allocate(name);
  inputs[q].set(0, 3.0f);
  inputs[k].set(0, 1.0f);
  inputs[k].set(1, 1.0f);  // P = (1/2, 1/2), both scores -6
  inputs[v].set(0, -4.0f);
  inputs[v].set(1, 2.0f);  // out = -1
  inputs[dout].set(0, 5.0f);
  const ErrorScale scale = error_scale(inputs, exact_attention(inputs, Direction::backward));
  CHECK(scale.score == doctest::Approx(6));
  CHECK(scale.out[0].sum == doctest::Approx(3));              // 1/2 * 4 + 1/2 * 2
  CHECK(scale.out[0].root == doctest::Approx(std::sqrt(5)));  // of 2^2 + 1^2
  CHECK(scale.out[0].score == doctest::Approx(6));            // one product a score
  CHECK(scale.out[0].lse == doctest::Approx(6 - std::log(2)));
  CHECK(scale.dq[0].sum == doctest::Approx(60));       // |dP| = 20, 10; |delta| = 15: 2 * 1/2 * (35 + 25)
  CHECK(scale.dq[0].by_probs == doctest::Approx(30));  // dS = 1/2 (-20 + 5), 1/2 (10 + 5): 2 * (7.5 + 7.5)
  CHECK(scale.dq[0].root == doctest::Approx(15 * std::sqrt(2)));
  CHECK(scale.dq[0].by_out == doctest::Approx(10));  // 2 * (1/2 + 1/2) * 5
  CHECK(scale.dv[0].sum == doctest::Approx(2.5));    // 1/2 * 5
  CHECK(scale.dk[0].sum == doctest::Approx(105));    // 2 * 1/2 * 35 * 3
  CHECK(scale.dk[1].sum == doctest::Approx(75));     // 2 * 1/2 * 25 * 3
  CHECK(largest(scale.dk).sum == doctest::Approx(105));
  CHECK(scale.dk[0].by_probs == doctest::Approx(45));  // 2 * 7.5 * 3
  CHECK(scale.dk[0].root == doctest::Approx(45));      // one query
  CHECK(scale.dk[0].by_out == doctest::Approx(15));    // 2 * 1/2 * 5 * 3
}

}  // namespace
}  // namespace tilescope
