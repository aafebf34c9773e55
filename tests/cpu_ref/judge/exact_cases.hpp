// SPDX-License-Identifier: Apache-2.0
// Problems, inputs and comparisons of the tests that judge the judge.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <span>

#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {

inline constexpr double kTiny = 1e-12;  // fp64 rounding, for values near 1

/// Random inputs on a grid of 2^-10, so that sums and small steps are exact in fp32.
inline TensorSet grid_inputs(const AttentionProblem& problem) {
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::backward);
  for (TensorName name : {TensorName::q, TensorName::k, TensorName::v, TensorName::dout, TensorName::sink}) {
    Tensor& tensor = inputs[name];
    if (tensor.empty()) continue;
    for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
      tensor.set(i, std::round(tensor.get(i) * 1024.0f) / 1024.0f);
    }
  }
  return inputs;
}

inline AttentionProblem random_problem(unsigned seed) {
  testing::ProblemGenerator random(seed);
  AttentionProblem p = random.problem({4, 4});
  p.head_dim = random.between(1, 9);
  if (random.chance(0.5)) p.dropout = 0.3;
  if (random.chance(0.3)) p.softmax_scale = random.between(-8, 8) / 8.0;
  return p;
}

inline void check_near(std::span<const double> a, std::span<const double> b, double tolerance) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    CHECK((a[i] == b[i] || std::abs(a[i] - b[i]) <= tolerance * (1 + std::abs(a[i]))));
  }
}

}  // namespace tilescope
