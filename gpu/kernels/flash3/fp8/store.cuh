// SPDX-License-Identifier: Apache-2.0
// How flash3's forward pass in fp8 stores O, whose columns come in the order of row_of_column().
#pragma once

#include "gpu/kernels/flash3/fp8/arguments.cuh"
#include "gpu/primitives/sm90/byte_layout.hpp"
#include "gpu/primitives/sm90/stage_accumulator.cuh"

namespace tilescope::gpu::detail {

/// A warp's 16 rows of O, from row `query` on, straight from registers: a quad stores 32 bytes of bf16, or 64
/// of a split's part in fp32.
template <int kOutputs>
__device__ __forceinline__ void store_byte_ordered_rows(const Flash3ForwardArguments& args,
                                                        const Flash3Item& item, const float (&out)[kOutputs],
                                                        int query, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + 8 * half + lane / 4;
    if (row >= args.band.seqlen_q) continue;
    const bool part = args.out_parts.data;
    std::uint16_t* target = part ? nullptr : args.out_rows.row(item.part, item.head, row) + 4 * (lane % 4);
    float* part_target =
        part ? args.out_parts.row<float>(item.part, item.head, row) + 4 * (lane % 4) : nullptr;
#pragma unroll
    for (int group = 0; group < kOutputs / 8; ++group) {
      float x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = out[sm90::accumulator_of_column(group, half, i)];
      if (16 * group >= args.out_cols) continue;
      if (part) {
        *reinterpret_cast<float4*>(part_target + 16 * group) = make_float4(x[0], x[1], x[2], x[3]);
      } else {
        *reinterpret_cast<uint2*>(target + 16 * group) =
            make_uint2(sm90::pack_pair<sm90::WgmmaType::bf16>(x[0], x[1]),
                       sm90::pack_pair<sm90::WgmmaType::bf16>(x[2], x[3]));
      }
    }
  }
}

template <typename Rows>
__device__ __forceinline__ void store_lse(const Flash3ForwardArguments& args, const Flash3Item& item,
                                          const Rows& rows, float softmax_scale, int query, int lane) {
  if (lane % 4 != 0) return;
  float* lse = args.lse + item.part * args.lse_batch_stride + item.head * args.lse_head_stride;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query + 8 * half + lane / 4;
    if (row < args.band.seqlen_q) lse[row] = rows.log_sum_exp(half, softmax_scale);
  }
}

}  // namespace tilescope::gpu::detail
