// SPDX-License-Identifier: Apache-2.0
// How large the terms are whose rounding makes an attention kernel's error. A gradient can be far smaller
// than its terms, since those of a softmax cancel; its error cannot.
#pragma once

#include <vector>

#include "cpu_ref/judge/exact_attention.hpp"

namespace tilescope {

/// Magnitudes of the terms behind one row of an output: a query's for out and dq, a key's for dk and dv. Each
/// is the largest of the row's elements. |dP| and |delta| are sums of absolute products themselves.
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
  /// In dsink, whose queries' errors are independent: root of the sum of P |dout * out| squared, P of the
  /// sink.
  double by_out_root = 0;
  /// Root of the sum of the squared terms whose factor P (out, dv) or dS (dq, dk) is rounded to the element
  /// type.
  double root = 0;
  /// Root of the sum of the squares of what P or dS is multiplied by: what one absolute error of each makes.
  double factors = 0;
  /// The same of a P that dS is made from: of |scale| |dP - delta| times |k| (dq), |q| (dk).
  double probs_factors = 0;
  /// Root of the sum of the squares of what relative errors make of them, one of each stored score (equal
  /// ones in a row as one) and, in dq and dk, one of each stored dP; and in `out` of the row's LSE.
  double stored = 0, stored_lse = 0;
};

struct ErrorScale {
  double score = 0;                // largest |scaled score|
  std::vector<TermScale> out, dq;  // one a query row, (B, H, Nq)
  std::vector<TermScale> dk, dv;   // one a key row, (B, Hkv, Nk)
  std::vector<TermScale> dsink;    // one a query head

  /// By the rows of out, dq, dk, dv or dsink.
  const std::vector<TermScale>& rows(TensorName output) const;
};

/// Member by member the largest of all rows.
TermScale largest(const std::vector<TermScale>& rows);

/// One (query, key) pair that the mask lets through.
struct PairTerms {
  double abs_score = 0;             // |scale| * sum of |q k|, and what modifiers add
  double prob = 0, kept = 0;        // P, and what dropout multiplies it by
  double derivative = 1;            // of the score's modifiers
  double dprob = 0, abs_dprob = 0;  // dP with dropout, and the sum of its absolute products
  double scaled = 0;                // |scale * sum of q k|
  void add_to_out(TermScale& out, double v_max) const;
  void add_to_dv(TermScale& dv, double abs_lse, double dout_max) const;
};
/// One query of a backward pass.
struct QueryTerms {
  double abs_lse = 0;
  double delta = 0, abs_delta = 0;
  double out_norm = 0;  // root of the sum of (dout * out)^2
  /// Adds |scale| dS times a row of this magnitude, of k (to dq) or of q (to dk).
  void add_to_gradient(TermScale& gradient, const PairTerms& pair, double scale, double factor) const;
  /// Adds this row's part of the gradient of a sink that has so much of the row's softmax.
  void add_to_dsink(TermScale& dsink, double sink, double probability) const;
};
/// Makes the roots of the squares that have been summed so far.
void take_root(TermScale& row);

/// Spacing of the numbers of `type` at `value`, that of its subnormals at least.
double one_ulp(ElementType type, double value);

/// What rounding costs one output.
struct RoundingCost {
  double fp32 = 0;     // in units of 2^-24, when no term is rounded to the element type
  double by_out = 0;   // added to that, in units of the element type's: delta is summed from a rounded `out`
  double element = 0;  // in units of the element type's, when every term is rounded to it, S included
};
/// @param score  that an exponent is made of  @param fp32_score  times the error of its sum
RoundingCost rounding_cost(const TermScale& terms, double score, double fp32_score, TensorName name);

/// @param exact  of these inputs; the gradients have no terms unless it has gradients
ErrorScale error_scale(const TensorSet& inputs, const ExactAttention& exact);

}  // namespace tilescope
