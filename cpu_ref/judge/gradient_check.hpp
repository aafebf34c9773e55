// SPDX-License-Identifier: Apache-2.0
// A kernel's gradients against its own forward pass, by central differences along random directions: beside
// the judge, which compares them with the exact ones.
#pragma once

#include <vector>

#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// The derivative of sum(dout * out) along one direction of q, k or v.
struct GradientCheck {
  TensorName gradient = TensorName::dq;  // dq, dk, dv or dsink
  double by_gradient = 0;                // its product with the direction
  double by_difference = 0;              // from four forward passes
  /// What the two may differ by: a share of the length of the exact gradient, which is the root mean square
  /// of such derivatives, so that a wrong gradient cannot widen it.
  double bound = 0;

  double difference() const { return by_difference - by_gradient; }
  bool passed() const;
};

/// Differences are of the order of their rounding where a forward pass rounds more than fp32 does.
inline constexpr ElementType kGradientCheckType = ElementType::fp32;

/// Runs the kernel on normal random inputs, forward and backward once and forward four times for each
/// direction.
/// @param problem  in kGradientCheckType; dropout drops the same entries each time
/// @param directions  of each of q, k and v
/// @throws BadInput for another type; what running the kernel throws
std::vector<GradientCheck> check_gradients(const Kernel& kernel, const AttentionProblem& problem,
                                           const ProgramOptions& options, int directions = 3);

}  // namespace tilescope
