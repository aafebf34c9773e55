// SPDX-License-Identifier: Apache-2.0
// What the judge must give of one problem, from what it gives of another.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cpu_ref/judge/exact_cases.hpp"

namespace tilescope {
namespace {

using enum TensorName;

TEST_CASE("values of fewer columns give the first columns of what all of them give") {
  const AttentionProblem p{
      .heads = 2, .heads_kv = 1, .seqlen_q = 5, .seqlen_k = 6, .head_dim = 7, .causal = true};
  TensorSet whole = grid_inputs(p);
  AttentionProblem narrow = p;
  narrow.head_dim_v = 3;
  TensorSet first(narrow);
  for (const TensorName name : {q, k}) first.allocate(name) = whole[name].as(ElementType::fp32);
  for (const TensorName name : {v, dout}) {
    Tensor &from = whole[name], &to = first.allocate(name);
    for (std::int64_t i = 0; i < from.shape().elements(); ++i) {
      if (i % 7 < 3) to.set(i / 7 * 3 + i % 7, from.get(i));
      if (i % 7 >= 3) from.set(i, 0);
    }
  }
  const ExactAttention expected = exact_attention(whole, Direction::backward),
                       actual = exact_attention(first, Direction::backward);
  for (const TensorName name : {lse, dq, dk}) check_near(actual[name], expected[name], kTiny);
  for (const TensorName name : {out, dv}) {
    std::vector<double> columns;
    for (std::size_t i = 0; i < expected[name].size(); ++i) {
      if (i % 7 < 3) columns.push_back(expected[name][i]);
    }
    check_near(actual[name], columns, kTiny);
  }
}

TEST_CASE("a learned sink is one more key of that score whose value is 0") {
  const AttentionProblem p{.batch = 2,
                           .heads = 3,
                           .heads_kv = 3,
                           .seqlen_q = 5,
                           .seqlen_k = 7,
                           .head_dim = 4,
                           .score_mods = {.learned_sink = true}};
  TensorSet inputs = grid_inputs(p);
  AttentionProblem longer = p;
  longer.score_mods = {};
  longer.seqlen_k = 8;
  TensorSet with_key(longer);
  for (const TensorName name : {q, k, v, dout}) with_key.allocate(name).zero();
  const auto copy = [&](TensorName name, std::int64_t batch_head, std::int64_t row) {
    for (std::int64_t d = 0; d < 3; ++d) {  // the last column of q is 1, that of k the score over the scale
      Tensor &from = inputs[name], &to = with_key[name];
      to.set(to.row_index(batch_head / 3, batch_head % 3, row) + d,
             from.get(from.row_index(batch_head / 3, batch_head % 3, row) + d));
    }
  };
  for (std::int64_t i = 3; i < inputs[k].shape().elements(); i += 4) {
    inputs[k].set(i, 0);
    inputs[v].set(i, 0);
  }
  for (std::int64_t i = 3; i < inputs[q].shape().elements(); i += 4) {
    inputs[q].set(i, 0);
    inputs[dout].set(i, 0);
  }
  for (std::int64_t batch_head = 0; batch_head < 6; ++batch_head) {
    for (std::int64_t row = 0; row < 5; ++row) {
      copy(q, batch_head, row);
      copy(dout, batch_head, row);
      with_key[q].set(with_key[q].row_index(batch_head / 3, batch_head % 3, row) + 3, 1);
    }
    for (std::int64_t row = 0; row < 7; ++row) {
      copy(k, batch_head, row);
      copy(v, batch_head, row);
    }
    with_key[k].set(with_key[k].row_index(batch_head / 3, batch_head % 3, 7) + 3,
                    2 * inputs[sink].get(batch_head % 3));
  }
  const ExactAttention expected = exact_attention(with_key, Direction::backward),
                       actual = exact_attention(inputs, Direction::backward);
  check_near(actual.out, expected.out, kTiny);
  check_near(actual.lse, expected.lse, kTiny);
  for (std::int64_t head = 0; head < 3; ++head) {
    // The last key's dk[3] is scale * sum of dS, scale = 1/2.
    double sum = 0;
    for (std::int64_t batch = 0; batch < 2; ++batch) {
      sum += 2 * expected.dk[static_cast<std::size_t>(((batch * 3 + head) * 8 + 7) * 4 + 3)];
    }
    CHECK(actual.dsink[static_cast<std::size_t>(head)] == doctest::Approx(sum).epsilon(1e-10));
  }
}

TEST_CASE("a vector added to all keys shifts each LSE and nothing else") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const AttentionProblem p = random_problem(seed);
    CAPTURE(describe(p));
    TensorSet inputs = grid_inputs(p);
    const ExactAttention before = exact_attention(inputs, Direction::backward);
    Tensor& keys = inputs[k];
    for (std::int64_t i = 0; i < keys.shape().elements(); ++i) keys.set(i, keys.get(i) + 1.5f);
    const ExactAttention after = exact_attention(inputs, Direction::backward);
    std::vector<double> shifted = before.lse;
    for (std::size_t row = 0; row < shifted.size(); ++row) {
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        shifted[row] += p.scale() * 1.5 * inputs[q].get(static_cast<std::int64_t>(row) * p.head_dim + d);
      }
    }
    check_near(after.lse, shifted, kTiny);
    for (TensorName name : {out, dq, dk, dv}) check_near(after[name], before[name], 100 * kTiny);
  }
}

TEST_CASE("a permutation of the keys permutes dk and dv and nothing else") {
  AttentionProblem p{.batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 5, .seqlen_k = 7, .head_dim = 6};
  TensorSet inputs = grid_inputs(p), permuted = grid_inputs(p);
  const auto source = [&p](std::int64_t index) {  // row j takes row 3 j mod 7
    const std::int64_t row = index / p.head_dim, head = row / p.seqlen_k, j = row % p.seqlen_k;
    return (head * p.seqlen_k + 3 * j % p.seqlen_k) * p.head_dim + index % p.head_dim;
  };
  for (TensorName name : {k, v}) {
    for (std::int64_t i = 0; i < inputs[name].shape().elements(); ++i) {
      permuted[name].set(i, inputs[name].get(source(i)));
    }
  }
  const ExactAttention a = exact_attention(inputs, Direction::backward);
  const ExactAttention b = exact_attention(permuted, Direction::backward);
  for (TensorName name : {out, lse, dq}) check_near(b[name], a[name], kTiny);
  for (TensorName name : {dk, dv}) {
    std::vector<double> moved(a[name].size());
    for (std::size_t i = 0; i < moved.size(); ++i) moved[i] = a[name][source(static_cast<std::int64_t>(i))];
    check_near(b[name], moved, kTiny);
  }
}

TEST_CASE("a row that sees no key gives zeros and an LSE of -inf, and leaves other rows alone") {
  TensorSet inputs = grid_inputs({.seqlen_q = 9, .seqlen_k = 4, .head_dim = 3, .causal = true});
  const ExactAttention exact = exact_attention(inputs, Direction::backward);
  for (int i = 0; i < 9; ++i) {
    CAPTURE(i);
    const bool empty = i < 5;  // i + 4 - 9 < 0
    CHECK((exact.lse[i] == -std::numeric_limits<double>::infinity()) == empty);
    for (int d = 0; d < 3; ++d) {
      CHECK((exact.out[3 * i + d] == 0.0) == empty);
      CHECK(std::isfinite(exact.dq[3 * i + d]));
      if (empty) CHECK(exact.dq[3 * i + d] == 0.0);
    }
  }
  for (double value : exact.dk) CHECK(std::isfinite(value));
  for (double value : exact.dv) CHECK(std::isfinite(value));
}

TEST_CASE("rows of P sum to one: V of ones gives ones") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    AttentionProblem p = random_problem(seed);
    p.dropout = 0;
    CAPTURE(describe(p));
    TensorSet inputs = grid_inputs(p);
    for (std::int64_t i = 0; i < inputs[v].shape().elements(); ++i) inputs[v].set(i, 1.0f);
    const ExactAttention exact = exact_attention(inputs, Direction::forward);
    for (std::size_t i = 0; i < exact.out.size(); ++i) {
      const bool empty = std::isinf(exact.lse[i / static_cast<std::size_t>(p.head_dim)]);
      CHECK(std::abs(exact.out[i] - (empty ? 0.0 : 1.0)) <= kTiny);
    }
  }
}

TEST_CASE("the output is linear in V, with dropout too") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    const AttentionProblem p = random_problem(seed);
    CAPTURE(describe(p));
    TensorSet inputs = grid_inputs(p);
    const ExactAttention first = exact_attention(inputs, Direction::forward);
    for (std::int64_t i = 0; i < inputs[v].shape().elements(); ++i) {
      inputs[v].set(i, 3 * inputs[v].get(i) - 2);
    }
    const ExactAttention second = exact_attention(inputs, Direction::forward);
    for (std::int64_t i = 0; i < inputs[v].shape().elements(); ++i) inputs[v].set(i, -2);
    const ExactAttention constant = exact_attention(inputs, Direction::forward);
    std::vector<double> expected(first.out.size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = 3 * first.out[i] + constant.out[i];
    check_near(second.out, expected, kTiny);
  }
}

TEST_CASE("a scale of zero averages the visible values") {
  AttentionProblem p{.heads = 2, .seqlen_q = 6, .seqlen_k = 9, .head_dim = 4, .window_left = 3};
  p.window_right = 1;
  p.softmax_scale = 0.0;
  TensorSet inputs = grid_inputs(p);
  const ExactAttention exact = exact_attention(inputs, Direction::backward);
  for (std::int64_t row = 0; row < 12; ++row) {
    const std::int64_t i = row % 6, first = std::max<std::int64_t>(0, i),
                       last = std::min<std::int64_t>(8, i + 4);
    CHECK(std::abs(exact.lse[row] - std::log(static_cast<double>(last - first + 1))) <= kTiny);
    for (std::int64_t d = 0; d < 4; ++d) {
      double mean = 0;
      for (std::int64_t j = first; j <= last; ++j) mean += inputs[v].get(j * 4 + d);
      mean /= static_cast<double>(last - first + 1);
      CHECK(std::abs(exact.out[row * 4 + d] - mean) <= kTiny);
    }
  }
  for (TensorName name : {dq, dk}) {
    for (double value : exact[name]) CHECK(value == 0.0);
  }
}

TEST_CASE("grouped heads are repeated key/value heads, whose gradients add up") {
  const AttentionProblem grouped{.batch = 2,
                                 .heads = 6,
                                 .heads_kv = 2,
                                 .seqlen_q = 4,
                                 .seqlen_k = 5,
                                 .head_dim = 3,
                                 .causal = true,
                                 .dropout = 0.25};
  AttentionProblem full = grouped;
  full.heads_kv = 6;
  TensorSet inputs = grid_inputs(grouped), repeated = grid_inputs(full);
  const std::int64_t head_elements = 5 * 3;
  const auto source = [&](std::int64_t i) {
    return i / head_elements / 3 * head_elements + i % head_elements;
  };
  for (TensorName name : {k, v}) {
    for (std::int64_t i = 0; i < repeated[name].shape().elements(); ++i) {
      repeated[name].set(i, inputs[name].get(source(i)));
    }
  }
  const ExactAttention a = exact_attention(inputs, Direction::backward);
  const ExactAttention b = exact_attention(repeated, Direction::backward);
  for (TensorName name : {out, lse, dq}) check_near(a[name], b[name], kTiny);
  for (TensorName name : {dk, dv}) {
    std::vector<double> sums(a[name].size());
    for (std::size_t i = 0; i < b[name].size(); ++i) {
      sums[source(static_cast<std::int64_t>(i))] += b[name][i];
    }
    check_near(a[name], sums, 10 * kTiny);
  }
}

}  // namespace
}  // namespace tilescope
