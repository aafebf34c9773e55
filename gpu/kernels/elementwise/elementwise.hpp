// SPDX-License-Identifier: Apache-2.0
// The passes without matrix products, which the rungs share: delta, init and convert.
#pragma once

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// Of a CTA.
inline constexpr int kElementwiseThreads = 256;

/// delta = rowsum(dO * O) in fp32; zeroes dq_accum where the problem holds one, or the flags of DqStart. Sums
/// the gradients of learned sinks, in whatever order CTAs end. Source: FlashAttention-2, Algorithm 2, line 4.
void launch_delta(const TileProgram&, const KernelArguments&, CUstream_st*);
/// Zeroes the fp32 accumulators that the pass stores.
/// @param early  see CtaGrid: it needs nothing of the kernel before, but ends after it
void launch_init(const TileProgram&, const KernelArguments&, CUstream_st*, bool early = false);
/// Rounds fp32 sums to the element type: each tensor that the pass loads to the one that it stores at the
/// same place. dq_accum and dk_accum take the softmax scale on the way.
/// @param early  see CtaGrid: after a kernel of sm_90 that lets the next begin
void launch_convert(const TileProgram&, const KernelArguments&, CUstream_st*, bool early = false);

}  // namespace tilescope
