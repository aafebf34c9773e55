// SPDX-License-Identifier: Apache-2.0
// How large the terms are whose rounding makes an attention kernel's error. A gradient can be far smaller
// than its terms, since those of a softmax cancel; its error cannot.
#pragma once

#include "cpu_ref/judge/exact_attention.hpp"

namespace tilescope {

/// The largest sum of absolute terms behind an element of each output; |dP| and |delta| are sums of absolute
/// products themselves.
struct ErrorScale {
  double score = 0;  // |scaled score|
  double out = 0;    // sum over keys of P |v|
  double dv = 0;     // sum over queries of P |dout|
  double dq = 0;     // |scale| * sum over keys of P (|dP| + |delta|) |k|
  double dk = 0;     // |scale| * sum over queries of P (|dP| + |delta|) |q|
  // What a relative error of P makes of out, dq and dk, where what normalises P has cancelled already:
  double out_by_probs = 0;  // sum over keys of P |v - out|
  double dq_by_probs = 0;   // |scale| * sum over keys of |dS| |k|
  double dk_by_probs = 0;   // |scale| * sum over queries of |dS| |q|
  // What independent relative errors of the elements of `out` make of them where delta = rowsum(dout * out):
  // |dout * out| is the root of the sum of the squared products.
  double dq_by_out = 0;  // |scale| * sum over keys of P |dout * out| |k|
  double dk_by_out = 0;  // |scale| * sum over queries of P |dout * out| |q|
};

/// @param exact  of these inputs; the gradients' terms stay 0 unless it has gradients
ErrorScale error_scale(const TensorSet& inputs, const ExactAttention& exact);

}  // namespace tilescope
