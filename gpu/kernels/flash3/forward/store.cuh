// SPDX-License-Identifier: Apache-2.0
// How rows of O and LSE leave flash3's forward pass.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/producer.cuh"
#include "gpu/kernels/flash3/forward/softmax.cuh"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// Where a warp puts its 16 rows of O together, once its last boxes have been read.
template <Flash3ForwardShape kShape>
__device__ __forceinline__ std::uint32_t free_rows(Flash3Shared<kShape> shared, int warp, int lane) {
  if (lane == 0) sm90::wait_for_store_reads<0>();
  __syncwarp();
  return shared.base + Flash3Shared<kShape>::kLayout.out + computed_again(warp) * kShape.out_tile().bytes();
}

/// The copy engine takes them from there.
template <Flash3ForwardShape kShape>
__device__ __forceinline__ void store_boxes(const Flash3ForwardArguments& args, const Flash3Item& item,
                                            std::uint32_t tile, int query, int lane) {
  constexpr sm90::PanelTile kTile = kShape.out_tile();
  sm90::fence_async_proxy();
  __syncwarp();
  if (lane == 0 && query < args.band.seqlen_q) {
#pragma unroll
    for (int panel = 0; panel < kTile.panels(); ++panel) {
      sm90::store_box(args.out, tile + panel * kTile.panel_bytes(), panel * kTile.panel_cols(), query,
                      item.head, item.part);
    }
    sm90::commit_stores();
  }
  __syncwarp();
}

/// A warp's 16 rows of O, from row `query` on, and their LSE. A split's part of O is in fp32.
template <sm90::WgmmaType kType, Flash3ForwardShape kShape>
__device__ __forceinline__ void store_rows(const Flash3ForwardArguments& args, Flash3Shared<kShape> shared,
                                           const Flash3Item& item, const Flash3Rows& rows,
                                           const float (&out)[kShape.values() / 2], int query, int warp,
                                           int lane) {
  lane = computed_again(lane);  // once an item, not in registers while tiles are
  if (lane % 4 == 0) {
    float* lse = args.lse + item.part * args.lse_batch_stride + item.head * args.lse_head_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = query + 8 * half + lane / 4;
      if (row < args.band.seqlen_q) lse[row] = rows.log_sum_exp(half, args.softmax_scale);
    }
  }
  if (args.out_parts.data) {
    sm90::store_rows_fp32(out, args.out_parts.row<float>(item.part, item.head, query),
                          args.out_parts.row_stride, args.band.seqlen_q - query, args.out_cols, lane);
    return;
  }
  if constexpr (kShape.output == Flash3Output::direct) {
    sm90::store_rows_direct<kType>(out, args.out_rows.row(item.part, item.head, query),
                                   args.out_rows.row_stride, args.band.seqlen_q - query, args.out_cols, lane);
  } else {
    const std::uint32_t tile = free_rows<kShape>(shared, warp, lane);
    sm90::stage_rows<kType, kShape.out_tile(), kShape.values()>(out, tile, lane);
    store_boxes<kShape>(args, item, tile, query, lane);
  }
}

/// Zeros as O of a warp's rows that see no key, and their LSE, one number after the other.
/// @param lse  -inf, or a sink
__device__ __forceinline__ void store_empty_rows(const Flash3ForwardArguments& args, const Flash3Item& item,
                                                 int query, int lane, float lse = kMinusInfinity) {
  for (int row = query; row < min(query + 16, args.band.seqlen_q); ++row) {
    if (args.out_parts.data) {
      float* part = args.out_parts.row<float>(item.part, item.head, row);
      for (int col = lane; col < args.out_cols; col += 32) part[col] = 0.0f;
    } else {
      std::uint16_t* out = args.out_rows.row(item.part, item.head, row);
      for (int col = lane; col < args.out_cols; col += 32) out[col] = 0;
    }
    if (lane == 0) {
      args.lse[item.part * args.lse_batch_stride + item.head * args.lse_head_stride + row] = lse;
    }
  }
}

/// The same, by the boxes that other rows of O take, so that as many bytes leave.
template <Flash3ForwardShape kShape>
__device__ __forceinline__ void store_empty_rows(const Flash3ForwardArguments& args,
                                                 Flash3Shared<kShape> shared, const Flash3Item& item,
                                                 int query, int warp, int lane, float lse) {
  if (kShape.output == Flash3Output::direct || args.out_parts.data) {
    store_empty_rows(args, item, query, lane, lse);
  } else {
    if (lane < min(16, args.band.seqlen_q - query)) {
      args.lse[item.part * args.lse_batch_stride + item.head * args.lse_head_stride + query + lane] = lse;
    }
    const std::uint32_t tile = free_rows<kShape>(shared, warp, lane);
#pragma unroll 1
    for (int byte = 16 * computed_again(lane); byte < kShape.out_tile().bytes(); byte += 16 * 32) {
      sm90::store_zeros(tile + byte);
    }
    store_boxes<kShape>(args, item, tile, query, lane);
  }
}

__device__ __forceinline__ void store_number(std::uint32_t address, float x) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
}
__device__ __forceinline__ float load_number(std::uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
  return x;
}

}  // namespace tilescope::gpu::detail
