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

/// Where a row of O is.
struct Flash3Place {
  int head, query;
};
/// Of a warpgroup's 64 rows. Eight that follow each other, from a multiple of eight on, are of one head.
/// @param first_query  of the warpgroup
template <auto kShape>
__device__ __forceinline__ Flash3Place place_of(const Flash3ForwardArguments& args, const Flash3Item& item,
                                                int first_query, int row) {
  if constexpr (kShape.interleaves()) {
    const int bits = args.head_bits;
    return {(item.head << bits) + (row >> (6 - bits)), first_query + (row & ((64 >> bits) - 1))};
  } else {
    return {item.head, first_query + row};
  }
}
__device__ __forceinline__ float& lse_of(const Flash3ForwardArguments& args, const Flash3Item& item,
                                         const Flash3Place& row) {
  return args.lse[item.part * args.lse_batch_stride + row.head * args.lse_head_stride + row.query];
}

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
                                            std::uint32_t tile, const Flash3Place& first, int lane) {
  constexpr sm90::PanelTile kTile = kShape.out_tile();
  sm90::fence_async_proxy();
  __syncwarp();
  if (lane == 0 && first.query < args.band.seqlen_q) {
#pragma unroll
    for (int panel = 0; panel < kTile.panels(); ++panel) {
      sm90::store_box(args.out, tile + panel * kTile.panel_bytes(), panel * kTile.panel_cols(), first.query,
                      first.head, item.part);
    }
    sm90::commit_stores();
  }
  __syncwarp();
}

/// A warp's 16 rows of O and their LSE. A split's part of O is in fp32.
/// @param first_query  of its warpgroup; warp  of all that compute
template <sm90::WgmmaType kType, Flash3ForwardShape kShape>
__device__ __forceinline__ void store_rows(const Flash3ForwardArguments& args, Flash3Shared<kShape> shared,
                                           const Flash3Item& item, const Flash3Rows& rows,
                                           const float (&out)[kShape.values() / 2], int first_query, int warp,
                                           int lane) {
  lane = computed_again(lane);  // once an item, not in registers while tiles are
  const int row = 16 * (computed_again(warp) % 4);
  const Flash3Place upper = place_of<kShape>(args, item, first_query, row);
  const Flash3Place lower = place_of<kShape>(args, item, first_query, row + 8);
  if (lane % 4 == 0) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Flash3Place& place = half == 0 ? upper : lower;
      const int query = place.query + lane / 4;
      if (query < args.band.seqlen_q) {
        lse_of(args, item, {place.head, query}) = rows.log_sum_exp(half, args.softmax_scale);
      }
    }
  }
  const auto halves = [&](std::int64_t head_stride, std::int64_t row_stride) {
    return sm90::RowHalves{(lower.head - upper.head) * head_stride + (lower.query - upper.query) * row_stride,
                           {args.band.seqlen_q - upper.query, args.band.seqlen_q - lower.query}};
  };
  if (args.out_parts.data) {
    const DeviceTensor& parts = args.out_parts;
    sm90::store_rows_fp32(out, parts.row<float>(item.part, upper.head, upper.query), parts.row_stride,
                          halves(parts.head_stride, parts.row_stride), args.out_cols, lane);
    return;
  }
  if constexpr (kShape.output == Flash3Output::direct) {
    const Flash3OutputRows& to = args.out_rows;
    sm90::store_rows_direct<kType>(out, to.row(item.part, upper.head, upper.query), to.row_stride,
                                   halves(to.head_stride, to.row_stride), args.out_cols, lane);
  } else {
    const std::uint32_t tile = free_rows<kShape>(shared, warp, lane);
    sm90::stage_rows<kType, kShape.out_tile(), kShape.values()>(out, tile, lane);
    store_boxes<kShape>(args, item, tile, upper, lane);
  }
}

/// Zeros as O of a warp's rows that see no key, and their LSE, one number after the other.
/// @param first_query, first_row  of the warpgroup, and of the warp among its rows; lse  -inf, or a sink
template <auto kShape>
__device__ __forceinline__ void store_empty_rows(const Flash3ForwardArguments& args, const Flash3Item& item,
                                                 int first_query, int first_row, int lane,
                                                 float lse = kMinusInfinity) {
  const int rows_left = args.band.seqlen_q - first_query;  // of one head
  const int end = kShape.interleaves() ? first_row + 16 : min(first_row + 16, rows_left);
  for (int i = first_row; i < end; ++i) {
    const Flash3Place row = place_of<kShape>(args, item, first_query, i);
    if (kShape.interleaves() && row.query >= args.band.seqlen_q) continue;
    if (args.out_parts.data) {
      float* part = args.out_parts.row<float>(item.part, row.head, row.query);
      for (int col = lane; col < args.out_cols; col += 32) part[col] = 0.0f;
    } else {
      std::uint16_t* out = args.out_rows.row(item.part, row.head, row.query);
      for (int col = lane; col < args.out_cols; col += 32) out[col] = 0;
    }
    if (lane == 0) lse_of(args, item, row) = lse;
  }
}

/// The same, by the boxes that other rows of O take, so that as many bytes leave.
template <Flash3ForwardShape kShape>
__device__ __forceinline__ void store_empty_rows(const Flash3ForwardArguments& args,
                                                 Flash3Shared<kShape> shared, const Flash3Item& item,
                                                 int first_query, int warp, int lane, float lse) {
  const int first_row = 16 * (warp % 4);
  if (kShape.output == Flash3Output::direct || args.out_parts.data) {
    store_empty_rows<kShape>(args, item, first_query, first_row, lane, lse);
  } else {
    const Flash3Place own = place_of<kShape>(args, item, first_query, first_row + lane % 16);
    if (lane < 16 && own.query < args.band.seqlen_q) lse_of(args, item, own) = lse;
    const std::uint32_t tile = free_rows<kShape>(shared, warp, lane);
#pragma unroll 1
    for (int byte = 16 * computed_again(lane); byte < kShape.out_tile().bytes(); byte += 16 * 32) {
      sm90::store_zeros(tile + byte);
    }
    store_boxes<kShape>(args, item, tile, place_of<kShape>(args, item, first_query, first_row), lane);
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
