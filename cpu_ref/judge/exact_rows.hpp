// SPDX-License-Identifier: Apache-2.0
// Rows of attention's outputs one by one, in fp64 by the definition, with the sizes of the terms that round
// in them. A row costs seqlen x head_dim. Tensors are single heads, (1, 1, rows, cols).
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/judge/error_scale.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// A row as it should be, with the scale of its terms.
struct ExactRow {
  std::vector<double> values;
  TermScale scale;
};

struct ExactForward {
  ExactRow out, lse;
};

/// One query against all keys of its head.
/// @param made  the problem, its descales and its numbers of heads
/// @param batch_head  batch * heads + head, over query heads  @param sums  in which scores of fp8 are summed
ExactForward exact_forward(const TensorSet& made, const Tensor& q, const Tensor& k, const Tensor& v,
                           std::int64_t batch_head, std::int64_t query, Fp8Sums sums);

/// A query head as gradients need it.
struct QueryHead {
  std::int64_t batch_head = 0;
  Tensor q, dout, lse;
  std::vector<QueryTerms> queries;
};
QueryHead query_head(std::int64_t batch_head, Tensor q, Tensor dout, const Tensor& out, Tensor lse);

ExactRow exact_dq(const TensorSet& made, const QueryHead& head, const Tensor& k, const Tensor& v,
                  std::int64_t query);

struct KeyGradients {
  ExactRow dk, dv;
};
/// One key against all queries of the heads that share it.
KeyGradients key_gradients(const TensorSet& made, const std::vector<QueryHead>& heads, const Tensor& k_head,
                           const Tensor& v_head, std::int64_t key);

}  // namespace tilescope
