// SPDX-License-Identifier: Apache-2.0
// The judge itself, judged: by central differences and by values worked out by hand.
#include "cpu_ref/judge/exact_attention.hpp"

#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu_ref/numeric/philox.hpp"
#include "tests/cpu_ref/judge/exact_cases.hpp"

namespace tilescope {
namespace {

using enum TensorName;

double loss(const TensorSet& inputs) {
  const ExactAttention exact = exact_attention(inputs, Direction::forward);
  double sum = 0;
  for (std::size_t i = 0; i < exact.out.size(); ++i) {
    sum += exact.out[i] * inputs[dout].get(static_cast<std::int64_t>(i));
  }
  return sum;
}

/// Fourth-order central difference of the loss in one input element.
double slope(TensorSet& inputs, TensorName name, std::int64_t index) {
  constexpr float h = 0x1p-10f;
  const float value = inputs[name].get(index);
  const auto loss_at = [&](float step) {
    inputs[name].set(index, value + step);
    return loss(inputs);
  };
  const double near = loss_at(h) - loss_at(-h), far = loss_at(2 * h) - loss_at(-2 * h);
  inputs[name].set(index, value);
  return (8 * near - far) / (12.0 * h);
}

TEST_CASE("two keys by hand") {
  TensorSet inputs({.seqlen_k = 2, .head_dim = 1, .softmax_scale = 1.0});
  for (TensorName name : {q, k, v, dout}) inputs.allocate(name);
  inputs[q].set(0, 1.0f);
  inputs[k].set(0, 0.0f);
  inputs[k].set(1, std::log(3.0f));  // P = (1/4, 3/4)
  inputs[v].set(0, 4.0f);
  inputs[v].set(1, 8.0f);
  inputs[dout].set(0, 2.0f);
  const ExactAttention exact = exact_attention(inputs, Direction::backward);
  constexpr double fp32 = 1e-6;
  check_near(exact.out, std::vector{7.0}, fp32);
  check_near(exact.lse, std::vector{std::log(4.0)}, fp32);
  check_near(exact.dv, std::vector{0.5, 1.5}, fp32);
  check_near(exact.delta, std::vector{14.0}, fp32);    // 2 * 7
  check_near(exact.dk, std::vector{-1.5, 1.5}, fp32);  // dS = P * (dP - delta) = 1/4 (8 - 14), 3/4 (16 - 14)
  check_near(exact.dq, std::vector{1.5 * std::log(3.0)}, fp32);
}

TEST_CASE("gradients agree with central differences") {
  for (unsigned seed = 0; seed < 24; ++seed) {
    testing::ProblemGenerator random(seed);
    AttentionProblem p = random_problem(seed);
    if (seed % 2 == 1 && p.scale() != 0) p = random.modified(p);
    if (seed % 3 == 1) p.head_dim_v = random.between(1, 9);
    CAPTURE(seed);
    CAPTURE(describe(p));
    TensorSet inputs = grid_inputs(p);
    const ExactAttention exact = exact_attention(inputs, Direction::backward);
    for (const auto& pair : {std::pair{q, dq}, {k, dk}, {v, dv}, {sink, dsink}}) {
      const TensorName input = pair.first, gradient = pair.second;
      if (!inputs.has(input)) continue;
      const int count = static_cast<int>(inputs[input].shape().elements());
      for (int sample = 0; sample < std::min(count, 40); ++sample) {
        const int index = count <= 40 ? sample : random.between(0, count - 1);
        CAPTURE(to_string(gradient));
        CAPTURE(index);
        const double expected = slope(inputs, input, index), actual = exact[gradient][index];
        CHECK(std::abs(actual - expected) <= 1e-8 * (1 + std::abs(expected)));
      }
    }
  }
}

TEST_CASE("the two statements of the dropout mask agree, and keep what they should") {
  const AttentionProblem p{.heads = 3, .heads_kv = 3, .dropout = 0.2, .seed = 77};
  const DropoutMask mask(p.seed, p.dropout);
  double sum = 0;
  for (int head = 0; head < 3; ++head) {
    for (int i = 0; i < 100; ++i) {
      for (int j = 0; j < 100; ++j) {
        const double factor = dropout_factor(p, head, i, j);
        REQUIRE(mask.keep(head, i, j) == (factor != 0));
        if (factor != 0) REQUIRE(factor == doctest::Approx(mask.keep_scale).epsilon(1e-7));
        sum += factor;
      }
    }
  }
  CHECK(std::abs(sum / 30000 - 1) < 0.012);  // four standard deviations
}

TEST_CASE("the result does not depend on the number of threads") {
  TensorSet inputs = grid_inputs(random_problem(5));
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const ExactAttention one = exact_attention(inputs, Direction::backward);
  omp_set_num_threads(5);
  const ExactAttention five = exact_attention(inputs, Direction::backward);
  omp_set_num_threads(threads);
  for (TensorName name : {out, lse, delta, dq, dk, dv}) {
    CHECK(std::equal(one[name].begin(), one[name].end(), five[name].begin(), five[name].end()));
  }
}

TEST_CASE("a NaN reaches every output that depends on it and no other") {
  TensorSet inputs = grid_inputs({.seqlen_q = 4, .seqlen_k = 4, .head_dim = 2, .causal = true});
  inputs[k].set(2 * 2, std::numeric_limits<float>::quiet_NaN());  // key 2: seen by queries 2 and 3
  const ExactAttention exact = exact_attention(inputs, Direction::forward);
  for (int i = 0; i < 4; ++i) {
    CHECK(std::isnan(exact.lse[i]) == (i >= 2));
    CHECK(std::isnan(exact.out[2 * i]) == (i >= 2));
  }
}

}  // namespace
}  // namespace tilescope
