// SPDX-License-Identifier: Apache-2.0
// The judge: attention by its definition, in fp64, untiled. It states mask and dropout itself and uses no
// tile schedule, so that a wrong schedule cannot make everything agree on the same error.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu_ref/judge/mask_allows.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// What dropout multiplies entry (query, key) of P by: 0, or 1 / (1 - dropout). The definition at
/// DropoutMask, stated a second time. `batch_head` = batch * heads + head, over query heads.
double dropout_factor(const AttentionProblem& problem, std::int64_t batch_head, std::int64_t query,
                      std::int64_t key);

/// Results in fp64, C order, shaped as the tensors of the same names.
struct ExactAttention {
  std::vector<double> out;         // (B, H, Nq, D)
  std::vector<double> lse;         // (B, H, Nq), natural log; -inf for a row that sees no key
  std::vector<double> dq, dk, dv;  // shapes of q, k, v; empty unless the backward pass was asked for
  std::vector<double> dsink;       // (H); empty too where there are no learned sinks
  /// (B, H, Nq): rowsum(P * dP) = rowsum(dout * out); empty unless the backward pass was asked for.
  std::vector<double> delta;

  /// The values of out, lse, delta, dq, dk, dv or dsink. @throws BadInput for any other tensor.
  std::span<const double> operator[](TensorName name) const;
};

/// Computes attention, and its gradients too when `direction` is backward, from the q, k, v (and dout) of
/// `inputs` as they are stored, already rounded to their element type, times their descales, with the numbers
/// of heads that the modifiers ask for. Two-pass
/// softmax, compensated sums over keys and queries; O(N) memory a row. Same result for every number of
/// threads. Source: FlashAttention (arXiv:2205.14135), section 3.1 and appendix B.2 for the gradients.
ExactAttention exact_attention(const TensorSet& inputs, Direction direction);

}  // namespace tilescope
