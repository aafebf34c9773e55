// SPDX-License-Identifier: Apache-2.0
// The score formula of the GPU kernels, stated once. The product of a row of Q and a row of K, times the
// softmax scale, is a score s, and P = e^(s - max) = 2^(product * scale - shift), with
//
//   scale  |softmax scale| * log2(e), which cpu_ref/primitives/kernel_scale.hpp keeps above 0: a masked
//          product, -inf, then weighs nothing at any scale
//   sign   of the softmax scale, put on the product, so that the largest product is that of the largest score
//   shift  of a row: what takes its largest exponent to 0, or its log-sum-exp
//
// What changes scores (a cap, a bias by position) changes the exponent here and the maximum with it.
#pragma once

#include "cpu_ref/primitives/score_constants.hpp"
#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// 2^x on the special function unit: 2 ulp, -inf gives 0, NaN stays NaN, denormal results become 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The product with the sign of the softmax scale.
__device__ __forceinline__ float signed_product(float product, const KernelArguments& args) {
  return args.score_sign * product;
}

__device__ __forceinline__ float score_exponent(float product, float scale, float shift) {
  return fmaf(product, scale, shift);
}

/// The shift of a row whose largest product is `max`. A row that has seen no key keeps -inf; its exponents
/// are taken from 0, so that they stay -inf.
/// @tparam kSeen  the row has seen a key for certain
template <bool kSeen = false>
__device__ __forceinline__ float exponent_shift(float max, float scale) {
  return !kSeen && max == kMinusInfinity ? 0.0f : -max * scale;
}

/// What a sum that was taken relative to `old_max` takes to be relative to the maximum of `shift`. From the
/// rounded shifts, not from the maxima: what earlier tiles summed was 2^(product * scale + old shift).
__device__ __forceinline__ float rescale_factor(float old_max, float scale, float shift) {
  return exp2_approx(shift + __fmul_rn(old_max, scale));
}

/// Natural-log row log-sum-exp; -inf for a row that saw no key.
/// @param scale  |softmax scale|
__device__ __forceinline__ float row_lse(float max, float scale, float sum) {
  return sum == 0.0f ? kMinusInfinity : fmaf(max, scale, logf(sum));
}

/// What normalises a row of P.
__device__ __forceinline__ float inverse_sum(float sum) { return sum == 0.0f ? 0.0f : 1.0f / sum; }

/// The scale, in a register. That it is above 0 the host has seen to; without this the tensor-core kernels
/// would read it from constant memory at every use, which took the forward pass from 56 to 112 bytes of
/// spills (sm_80, head_dim 128).
__device__ __forceinline__ float exponent_scale(const KernelArguments& args) {
  return fmaxf(args.softmax_scale_log2, kLeastExponentScale);
}

/// In a backward pass on tensor cores the sign of the softmax scale stands in `scale`, and a masked product
/// is what that takes to an exponent of -inf.
__device__ __forceinline__ float signed_exponent_scale(const KernelArguments& args) {
  return signed_product(exponent_scale(args), args);
}
__device__ __forceinline__ float masked_product(const KernelArguments& args) {
  return signed_product(kMinusInfinity, args);
}

/// Minus the shift of a row, from its LSE. A row that sees no key has lse = -inf and only masked scores.
__device__ __forceinline__ float lse_exponent(float lse) {
  return lse == kMinusInfinity ? 0.0f : lse * kLog2E;
}

}  // namespace tilescope
