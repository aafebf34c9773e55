// SPDX-License-Identifier: Apache-2.0
// The passes without matrix products, which the rungs share: delta, init and convert.
#pragma once

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// Of a CTA.
inline constexpr int kElementwiseThreads = 256;

/// Lanes that share a row when each takes so many bytes, or elements, at a time: a power of two, so that the
/// rest of a warp can take other rows.
constexpr int lanes_of_row(int row, int width) {
  int lanes = 1;
  while (lanes < 32 && lanes * width < row) lanes *= 2;
  return lanes;
}

/// delta = rowsum(dO * O) in fp32; zeroes dq_accum where the problem holds one, or the flags of DqStart. Sums
/// the gradients of learned sinks, in whatever order CTAs end. Source: FlashAttention-2, Algorithm 2, line 4.
void launch_delta(const TileProgram&, const KernelArguments&, CUstream_st*);
/// How it loads O and dO: a warp's lanes take 16 bytes each, a power of two of them a row.
inline std::vector<Boxes> delta_boxes(const AttentionProblem& problem) {
  constexpr int kLaneBytes = 16;
  const int row_bytes = static_cast<int>(problem.value_dim() * element_bytes(problem.dtype));
  if (row_bytes % kLaneBytes != 0 || row_bytes % kSectorBytes == 0) return {};
  const int rows = 32 / lanes_of_row(row_bytes, kLaneBytes);
  const auto piece = [&](TensorName tensor) {
    return Boxes{
        .tensor = tensor, .rows = rows, .panel_bytes = rows * row_bytes, .asked_by = AskedBy::pieces};
  };
  return {piece(TensorName::out), piece(TensorName::dout)};
}
/// Zeroes the fp32 accumulators that the pass stores.
/// @param early  see CtaGrid: it needs nothing of the kernel before, but ends after it
void launch_init(const TileProgram&, const KernelArguments&, CUstream_st*, bool early = false);
/// Rounds fp32 sums to the element type: each tensor that the pass loads to the one that it stores at the
/// same place. dq_accum and dk_accum take the softmax scale on the way.
/// @param early  see CtaGrid: after a kernel of sm_90 that lets the next begin
void launch_convert(const TileProgram&, const KernelArguments&, CUstream_st*, bool early = false);

}  // namespace tilescope
