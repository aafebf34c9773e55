// SPDX-License-Identifier: Apache-2.0
// The test matrix of Triton's attention kernels, and of the derivation of FlashAttention-2's backward pass
// that follows them: fp16 forward and backward to 1e-2, fp8 e5m2 forward to 3, inputs N(0, 0.5^2), scale 0.5.
// Lengths there are multiples of 128, and only causal problems pass; here the others do too.
#include <doctest/doctest.h>

#include "tests/sources/source_matrix.hpp"

namespace tilescope {
namespace {

using testing::check_source;
using testing::SourceRule;

const SourceRule kFp16{.most_error = 1e-2, .input_deviation = 0.5f};
const SourceRule kFp8{.most_error = 3, .input_deviation = 0.5f};
/// Its backward pass: delta, then dK and dV, then dQ.
const SourceRule kSplit{.most_error = 1e-2, .input_deviation = 0.5f, .orders = {BackwardOrder::split}};

AttentionProblem problem(std::int64_t heads, std::int64_t seqlen, std::int64_t head_dim, bool causal) {
  return {.heads = heads,
          .heads_kv = heads,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .dtype = ElementType::fp16,
          .causal = causal,
          .softmax_scale = 0.5};
}

TEST_CASE("Triton's kernels: fp16, forward and backward, causal and not") {
  for (const bool causal : {true, false}) {
    for (const std::int64_t head_dim : {16, 32, 64, 128, 256}) {
      CHECK(check_source(problem(2, 128, head_dim, causal), Direction::backward, kFp16) >= 3);
    }
    AttentionProblem batches = problem(2, 128, 64, causal);
    batches.batch = 4;
    CHECK(check_source(batches, Direction::backward, kFp16) >= 3);
  }
  CHECK(check_source(problem(1, 1024, 64, true), Direction::backward, kFp16) >= 3);
}

TEST_CASE("Triton's kernels: fp8 e5m2, forward") {
  for (const std::int64_t head_dim : {64, 128}) {
    for (const bool causal : {true, false}) {
      AttentionProblem fp8 = problem(2, 256, head_dim, causal);
      fp8.dtype = ElementType::fp8e5m2;
      CHECK(check_source(fp8, Direction::forward, kFp8) >= 1);
    }
  }
}

TEST_CASE("the derivation of the backward pass: split in three stages, multiples of 128") {
  for (const std::int64_t seqlen : {128, 256, 384}) {
    for (const bool causal : {true, false}) {
      CHECK(check_source(problem(1, seqlen, 64, causal), Direction::backward, kSplit) >= 1);
    }
  }
}

TEST_CASE("the derivation of the backward pass: self- and cross-attention at any length") {
  for (const auto& [queries, keys] : {std::pair{113, 113}, {113, 203}, {257, 129}, {1, 130}, {130, 20}}) {
    for (const bool causal : {true, false}) {
      AttentionProblem cross = problem(2, queries, 64, causal);
      cross.seqlen_k = keys;
      CHECK(check_source(cross, Direction::backward, kSplit) >= 1);
    }
  }
}

}  // namespace
}  // namespace tilescope
