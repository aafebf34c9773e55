// SPDX-License-Identifier: Apache-2.0
// How large the terms are whose rounding makes an attention kernel's error. A gradient can be far smaller
// than its terms, since those of a softmax cancel; its error cannot.
#pragma once

#include <vector>

#include "cpu_ref/judge/exact_attention.hpp"

namespace tilescope {

/// Of the terms behind one row of an output: a query's for out and dq, a key's for dk and dv. Each is the
/// largest of the row's elements. |dP| and |delta| are sums of absolute products themselves.
struct TermScale {
  double score = 0;  // largest |scale| * sum of |q k| of the pairs that the row sums over
  double lse = 0;    // largest |LSE| of these pairs' queries, which backward passes take from the score
  /// Sum of absolute terms: of P |v| (out), P |dout| (dv), |scale| P (|dP| + |delta|) times |k| (dq), |q|
  /// (dk).
  double sum = 0;
  /// What a relative error of P makes of them, where what normalises P has cancelled already: sum of
  /// P |v - out| (out), |scale| |dS| times |k| (dq), |q| (dk).
  double by_probs = 0;
  /// What independent relative errors of the elements of `out` make of dq and dk where delta =
  /// rowsum(dout * out): sum of |scale| P |dout * out| times |k| or |q|; |dout * out| is the root of the sum
  /// of the squared products.
  double by_out = 0;
  /// Root of the sum of the squared terms whose factor P (out, dv) or dS (dq, dk) is rounded to the element
  /// type.
  double root = 0;
};

struct ErrorScale {
  double score = 0;                // largest |scaled score|
  std::vector<TermScale> out, dq;  // one a query row, (B, H, Nq)
  std::vector<TermScale> dk, dv;   // one a key row, (B, Hkv, Nk)

  /// Of out, dq, dk or dv.
  const std::vector<TermScale>& rows(TensorName output) const;
};

/// Member by member the largest of all rows.
TermScale largest(const std::vector<TermScale>& rows);

/// @param exact  of these inputs; the gradients have no terms unless it has gradients
ErrorScale error_scale(const TensorSet& inputs, const ExactAttention& exact);

}  // namespace tilescope
