// SPDX-License-Identifier: Apache-2.0
// When a kernel is right: the rule that tests, the command line and the mutants share.
//
//   max|kernel - exact| <= factor * max|standard - exact| + atol
//
// `exact` is fp64; `standard` is the untiled implementation in the same element type: it says how much error
// that type costs on this very problem, so that no tolerance is typed by hand. Source of the rule:
// FlashAttention-3's tests (hopper/test_flash_attn.py): factor 2 for outputs, 3 for gradients, as in
// FlashAttention-2's; atol is 2 max|((exact + 0.3) - 0.3) - exact| in the output's element type. Two things
// are our own: a least bound, from the size of the terms, for outputs whose terms cancel to nothing, and an
// upper limit on the yardstick's error, so that a wrong yardstick is seen and excuses no other kernel.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/error_scale.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {

/// The outputs of a direction: out and lse, or dq, dk, dv and, of learned sinks, dsink.
std::span<const TensorName> output_tensors(const AttentionProblem& problem, Direction direction);

/// The kernel that is the yardstick: cpu:standard.
const Kernel& standard_kernel();

/// The CPU kernel that a GPU kernel mirrors: that of the same algorithm. None for a CPU kernel.
const Kernel* mirror_of(const Kernel& kernel);

/// What one tensor's values are allowed to be off, and why.
struct ErrorBound {
  double standard_max_abs = 0;  // max|standard - exact|, at most what rounding explains
  double standard_rmse = 0;
  double factor = 2;
  double atol = 0;       // rounding floor of the output's element type, measured from the exact values
  double least = 0;      // what rounding may cost where the yardstick is exact or lucky, from the terms' size
  double fp32_cost = 0;  // one rounding to fp32 of every term behind an element
  double largest = 0;    // max|exact|
  double bound() const { return std::max(factor * standard_max_abs + atol, least); }
};

/// How far one row of a kernel's output may be from its mirror's: see judge_mirror().
struct MirrorBound {
  double before_rounding = 0;  // of the values that are then rounded to `dtype`
  double most = 0;             // a share of the exact bound
  ElementType dtype = ElementType::fp32;
  /// The allowance for results of this magnitude: one more unit in the last place, and never less than that.
  double at(double value) const;
};

struct TensorVerdict {
  TensorName tensor;
  ErrorReport error;
  double bound = 0;  // of the largest error; of a mirror the largest of its elements' bounds
  std::optional<double> rmse_bound = std::nullopt;  // of the root mean square, if that is held to anything
  double share = 0;                                 // the largest of error / bound
  bool passed = false;
};

/// The judgement of one run.
struct Verdict {
  std::vector<TensorVerdict> tensors;  // in the order of output_tensors, forward first
  bool passed() const;
};

/// One problem with its inputs, its exact results and the bounds that follow from them, computed once for all
/// the kernels that are judged on it.
class Reference {
 public:
  /// @param inputs  q, k, v, and dout when `direction` is backward
  /// @param direction  the deepest that will be judged; backward includes forward
  Reference(TensorSet inputs, Direction direction, const Kernel& standard = standard_kernel());
  /// On random inputs.
  Reference(const AttentionProblem& problem, InputKind kind, Direction direction,
            const Kernel& standard = standard_kernel());

  const AttentionProblem& problem() const { return tensors_.problem(); }
  const ExactAttention& exact() const { return exact_; }
  const ErrorBound& bound(TensorName output) const;
  /// How coarse fp32 exponents are beside the element type that P is rounded to, at most 1. Next to 0 but for
  /// huge scores, whose last fp32 bit moves P by a unit of the element type.
  double coarseness() const;
  /// One a row of the output.
  /// @param arithmetic  of the kernel
  std::vector<MirrorBound> mirror_bounds(TensorName output, const Arithmetic& arithmetic = {}) const;
  /// What P V with that error costs a row of a forward pass, as a root mean square over the rows.
  double by_sums(TensorName output, double sum_error) const;
  /// Root mean square over the rows of what dq, dk and dsink inherit of a unit in the last place of every
  /// element of `out`; 0 for other outputs.
  double inherited_by_delta(TensorName output) const;
  /// Inputs, and what the last run left.
  const TensorSet& tensors() const { return tensors_; }

  /// Runs the kernel, forward and, if `direction` is backward, backward on its own forward results. All
  /// outputs are new: poisoned with NaN, and nothing is left of an earlier run.
  /// @param observer  takes the passes of both directions, if given
  void run(const Kernel& kernel, const ProgramOptions& options, Direction direction,
           TileObserver* observer = nullptr);
  /// The same for what is no single kernel: run_direction(direction, tensors) does what Kernel::run does.
  void run(const std::function<void(Direction, TensorSet&)>& run_direction, Direction direction);
  /// Judges what the last run left. A missing tensor, or one of another shape or type, fails.
  Verdict judge(Direction direction) const;
  TensorVerdict judge(TensorName output) const;
  Verdict judge(const Kernel& kernel, const ProgramOptions& options, Direction direction) {
    run(kernel, options, direction);
    return judge(direction);
  }
  /// Moves the outputs of the last run out, to compare another kernel's with them.
  TensorSet take_outputs();

 private:
  TensorSet tensors_;
  ExactAttention exact_;
  ErrorScale scale_;
  std::array<ErrorBound, kNumTensors> bounds_;
};

/// The root mean square of the difference is held to
///
///   rmse(a - b) <= rmse_factor * rmse(standard - exact) + fp32_cost
///                  + (max|standard - exact| + share * (2 least + unit)) / sqrt(rows)
///
/// or to an eighth of what delta inherits where all of `out` is tipped, if that is more: the yardstick makes
/// delta from P, not from a rounded `out`. (With one key and a dropout of 1/5, out = 5/4 v lies half way
/// between two numbers of the element type time and again.)
///
/// The last term is one row that a tipped rounding dominates. `unit` is 2 epsilon times the tensor's largest
/// value: two to four units in its last place. Results are tipped by the row only where scores are so large
/// that fp32 exponents are as coarse as the element type: `share` is the ratio of the two, at most 1.
struct MirrorRule {
  ElementType dtype;
  double rmse_factor;
  std::string_view reason;
};
std::span<const MirrorRule> mirror_rules();

/// Judges outputs of one kernel against those of another that mirrors it: both execute the same program with
/// the same roundings. What is free is the order of sums inside a tile, fused multiply-adds and the last bits
/// of exp2. Row by row, from the size of that row's own terms (error_scale.hpp):
///
/// 1. Sums. Either kernel's fp32 arithmetic costs a row at most three roundings of each of its terms, of the
///    exponents behind each P, and of the LSE where P is made from that: what `least` allows against the
///    exact result, of this row's terms and not of the largest. Two kernels: twice that.
/// 2. Tipped roundings of P and dS. Where the two kernels' fp32 values lie on two sides of a rounding
///    boundary, the terms differ by a unit in the last place of the element type. Which are tipped is a
///    matter of chance, so that they add like the root of their squares; all of them at worst. delta inherits
///    the same from `out`. A P below the least normal fp32 number is 0 on a GPU and a subnormal on a CPU.
/// 3. The result's own rounding, which can be tipped too: one unit in its last place. Two right results can
///    always lie that far apart.
///
/// Together they are at most nine tenths of the exact bound, but never less than the unit of 3. Only where
/// scores are so large that a last fp32 bit of an exponent moves P by a unit of the element type
/// (Reference::coarseness()) do two right kernels have other roundings: there the limit rises to twice the
/// exact bound, which is how far two results can be apart that both pass it. On an H200 fp16 kernels on
/// huge-scale inputs are that far from their mirrors.
///
/// A kernel whose rescaling is conditional rounds other numbers than its mirror, P times a
/// power of its own, so that every rounding of P is tipped, and with it any of `out`: their root mean square
/// may be that of two kernels with independent errors (kIndependentFactor in place of rmse_factor), and delta
/// inherits all of a tipped `out`. The bounds of elements stay.
///
/// Tensor cores keep few bits of sums of fp8 products. The mirror sums as they do (Fp8Sums), to the bit, so
/// that scores and an LSE have no bound of their own; where it rounds P to other numbers, `out` may be
/// Arithmetic::fp8_sum_error of its terms further off.
///
/// A kernel that stores S and dP in the element type and sums them in another order
/// (Arithmetic::stores_scores) tips roundings of these, too: a unit in the last place of any, added like the
/// root of their squares.
///
/// @param reference  of the problem that both were run on
/// @param arithmetic  of the kernel
Verdict judge_mirror(const Reference& reference, const TensorSet& kernel, const TensorSet& mirror,
                     Direction direction, const Arithmetic& arithmetic = {});

}  // namespace tilescope
