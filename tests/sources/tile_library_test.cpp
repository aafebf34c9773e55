// SPDX-License-Identifier: Apache-2.0
// The test matrix of the attention backward pass of a tile-based kernel library: grouped heads, fp16 and
// bf16, irregular lengths, corner cases. It names no tolerance; the 1e-2 of Triton's kernels for fp16, eight
// times that for bf16 with its three bits less, stands beside ours.
#include <doctest/doctest.h>

#include "tests/sources/source_matrix.hpp"

namespace tilescope {
namespace {

using testing::check_source;
using testing::SourceRule;

SourceRule rule_of(ElementType dtype) {
  return {.most_error = dtype == ElementType::fp16 ? 1e-2 : 8e-2, .input_deviation = 0.5f, .tile = {64, 64}};
}

void check_both_types(AttentionProblem problem) {
  for (const ElementType dtype : {ElementType::fp16, ElementType::bf16}) {
    problem.dtype = dtype;
    CHECK(check_source(problem, Direction::backward, rule_of(dtype)) >= 3);
  }
}

AttentionProblem square(std::int64_t heads, std::int64_t heads_kv, std::int64_t seqlen, bool causal) {
  return {.heads = heads,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = 64,
          .causal = causal};
}

TEST_CASE("the tile library: key/value heads shared by 2, 4, 8 and all query heads") {
  for (const auto& [heads, heads_kv] : {std::pair{4, 2}, {8, 2}, {8, 1}, {16, 2}, {3, 1}}) {
    check_both_types(square(heads, heads_kv, 96, heads % 8 == 0));
  }
}

TEST_CASE("the tile library: irregular lengths") {
  for (const std::int64_t seqlen : {127, 129, 131, 251}) {
    for (const bool causal : {false, true}) check_both_types(square(1, 1, seqlen, causal));
  }
  for (const std::int64_t seqlen : {1023, 1025}) check_both_types(square(1, 1, seqlen, true));
}

TEST_CASE("the tile library: the longest irregular lengths") {
  for (const std::int64_t seqlen : {2047, 2049}) {
    AttentionProblem problem = square(1, 1, seqlen, true);
    problem.dtype = ElementType::fp16;
    problem.head_dim = 32;
    CHECK(check_source(problem, Direction::backward, rule_of(problem.dtype)) >= 3);
  }
}

TEST_CASE("the tile library: one batch and many, one head and many, short sequences") {
  check_both_types(square(1, 1, 64, true));
  check_both_types(square(32, 32, 32, true));
  AttentionProblem batches = square(1, 1, 32, false);
  batches.batch = 16;
  check_both_types(batches);
  for (const std::int64_t seqlen : {1, 2, 7, 16}) check_both_types(square(2, 2, seqlen, true));
}

}  // namespace
}  // namespace tilescope
