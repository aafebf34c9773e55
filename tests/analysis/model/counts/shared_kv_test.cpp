// SPDX-License-Identifier: Apache-2.0
// Keys whose first columns are the values: what absorbed projections compute, and what crosses.
#include <doctest/doctest.h>

#include <vector>

#include "analysis/model/counts/closed_form.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/judge/sampled_rows.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

using enum TensorName;

constexpr std::int64_t kLatent = 24, kPosition = 8, kKeyColumns = 16, kValueColumns = 12, kHeads = 3;

/// Rows of random numbers, one matrix after the other.
struct Matrices {
  std::int64_t rows, cols;
  std::vector<float> values;

  Matrices(std::int64_t count, std::int64_t rows, std::int64_t cols, std::uint64_t seed)
      : rows(rows), cols(cols), values(static_cast<std::size_t>(count * rows * cols)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.3f * random_normal(seed, q, static_cast<std::int64_t>(i));
    }
  }
  float at(std::int64_t matrix, std::int64_t row, std::int64_t col) const {
    return values[static_cast<std::size_t>((matrix * rows + row) * cols + col)];
  }
};

float& element(Tensor& tensor, std::int64_t head, std::int64_t row, std::int64_t col) {
  return tensor.floats()[tensor.row_index(0, head, row) + col];
}

TEST_CASE("attention with absorbed projections is that of keys and values of each head") {
  AttentionProblem expanded{.heads = kHeads,
                            .heads_kv = kHeads,
                            .seqlen_q = 5,
                            .seqlen_k = 40,
                            .head_dim = kKeyColumns + kPosition,
                            .causal = true,
                            .softmax_scale = 0.4,
                            .head_dim_v = kValueColumns};
  AttentionProblem absorbed = expanded;
  absorbed.heads_kv = 1;
  absorbed.head_dim = kLatent + kPosition;
  absorbed.head_dim_v = kLatent;
  absorbed.shared_kv = true;
  const Matrices to_keys(kHeads, kLatent, kKeyColumns, 1), to_values(kHeads, kLatent, kValueColumns, 2);
  TensorSet of_heads(expanded), latent(absorbed);
  fill_random_inputs(of_heads, Direction::forward);
  fill_random_inputs(latent, Direction::forward);
  for (std::int64_t head = 0; head < kHeads; ++head) {
    for (std::int64_t key = 0; key < expanded.seqlen_k; ++key) {
      const float* const row = static_cast<const float*>(latent[k].row(0, 0, key));
      for (std::int64_t col = 0; col < expanded.head_dim; ++col) {
        double sum = col < kKeyColumns ? 0.0 : static_cast<double>(row[kLatent + col - kKeyColumns]);
        for (std::int64_t i = 0; i < kLatent && col < kKeyColumns; ++i) {
          sum += static_cast<double>(row[i]) * static_cast<double>(to_keys.at(head, i, col));
        }
        element(of_heads[k], head, key, col) = static_cast<float>(sum);
      }
      for (std::int64_t col = 0; col < kValueColumns; ++col) {
        double sum = 0;
        for (std::int64_t i = 0; i < kLatent; ++i) {
          sum += static_cast<double>(row[i]) * static_cast<double>(to_values.at(head, i, col));
        }
        element(of_heads[v], head, key, col) = static_cast<float>(sum);
      }
    }
    for (std::int64_t query = 0; query < expanded.seqlen_q; ++query) {
      const float* const row = static_cast<const float*>(of_heads[q].row(0, head, query));
      for (std::int64_t col = 0; col < absorbed.head_dim; ++col) {
        double sum = col < kLatent ? 0.0 : static_cast<double>(row[kKeyColumns + col - kLatent]);
        for (std::int64_t i = 0; i < kKeyColumns && col < kLatent; ++i) {
          sum += static_cast<double>(row[i]) * static_cast<double>(to_keys.at(head, col, i));
        }
        element(latent[q], head, query, col) = static_cast<float>(sum);
      }
    }
  }
  const ExactAttention of_each = exact_attention(of_heads, Direction::forward),
                       of_latent = exact_attention(latent, Direction::forward);
  for (std::int64_t row = 0; row < kHeads * expanded.seqlen_q; ++row) {
    CHECK(of_latent.lse[static_cast<std::size_t>(row)] ==
          doctest::Approx(of_each.lse[static_cast<std::size_t>(row)]).epsilon(1e-5));
    for (std::int64_t col = 0; col < kValueColumns; ++col) {
      double sum = 0;
      for (std::int64_t i = 0; i < kLatent; ++i) {
        sum += of_latent.out[static_cast<std::size_t>(row * kLatent + i)] *
               static_cast<double>(to_values.at(row / expanded.seqlen_q, i, col));
      }
      CHECK(sum ==
            doctest::Approx(of_each.out[static_cast<std::size_t>(row * kValueColumns + col)]).epsilon(1e-4));
    }
  }
}

TEST_CASE("what shares a tile crosses once: the bytes are those of keys and values less the values'") {
  AttentionProblem shared{.heads = 6,
                          .heads_kv = 1,
                          .seqlen_q = 20,
                          .seqlen_k = 200,
                          .head_dim = 576,
                          .dtype = ElementType::bf16,
                          .head_dim_v = 512,
                          .shared_kv = true};
  AttentionProblem apart = shared;
  apart.shared_kv = false;
  const std::int64_t values = tensor_extent(shared, v).bytes();
  CHECK(compulsory_bytes(apart, Direction::forward).read_bytes -
            compulsory_bytes(shared, Direction::forward).read_bytes ==
        values);
  ProgramOptions options = ProgramOptions::with_tile({64, 64});
  options.pack_gqa = true;
  const auto bytes = [&](const AttentionProblem& problem) {
    return closed_form_bytes(build_programs(Algorithm::flash2, Direction::forward, problem, options)[0]);
  };
  CHECK(bytes(apart).sm_l2_read_bytes - bytes(shared).sm_l2_read_bytes == 2 * values);  // of two q tiles
  CHECK(bytes(apart).sm_l2_write_bytes == bytes(shared).sm_l2_write_bytes);
  CHECK(useful_flops(shared, Direction::forward) == std::int64_t{2} * (576 + 512) * 6 * 20 * 200);
}

TEST_CASE("values that are no columns of keys are refused, and descales that would make them differ") {
  AttentionProblem problem{.head_dim = 64, .head_dim_v = 72, .shared_kv = true};
  CHECK_THROWS_AS(validate(problem), BadInput);
  problem.head_dim_v = 64;
  CHECK_NOTHROW(validate(problem));
  problem.dtype = ElementType::fp8e4m3;
  problem.descales.v = {.value = 2.0};
  CHECK_THROWS_AS(validate(problem), BadInput);
}

}  // namespace
}  // namespace tilescope
