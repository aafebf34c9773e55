// SPDX-License-Identifier: Apache-2.0
// Tiles on CUDA cores: swizzled fp32 tiles in shared memory and the three matrix products that attention
// needs of them, for CTAs of four warps that each own a quarter of the product's rows (the split-Q partition
// of FlashAttention-2, arXiv:2307.08691, section 3.3: warps exchange nothing).
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>
#include <limits>

#include "gpu/kernel_arguments.hpp"
#include "gpu/kernels/element.cuh"
#include "gpu/kernels/simt_shape.hpp"
#include "gpu/planted_bug.cuh"

namespace tilescope::simt {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

extern __shared__ float4 dynamic_shared[];
__device__ inline float* shared_memory() { return reinterpret_cast<float*>(dynamic_shared); }

/// Most CTAs are four warps; larger ones are groups of four, each with rows of its own.
__device__ inline int thread_in_group() { return static_cast<int>(threadIdx.x) % kThreads; }
__device__ inline int group_of_thread() { return static_cast<int>(threadIdx.x) / kThreads; }

/// This thread's place in its group. A warp is a grid of 4 x 8 lanes; lanes that differ in bit 0 differ in
/// row, in bit 1 in column, so that of the two operands of a product each is shared by neighbouring lanes,
/// and a 16-byte load of either takes two passes through shared memory instead of four.
struct Lane {
  int warp, row, col;
  __device__ static Lane here() {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return {thread_in_group() / 32, (lane & 1) | (lane >> 4) << 1, (lane >> 1) & 7};
  }
  /// First of the rows that this thread computes in a tile of `Rows`; the others follow kLaneRows apart.
  template <int Rows>
  __device__ int first_row() const {
    return warp * (Rows / kWarps) + row;
  }
};

/// Sum and maximum over the eight lanes that share a row.
__device__ inline float row_sum(float value) {
  const int last_bit = planted(GpuBug::simt_row_sum_of_half) ? 4 : 8;
  for (int bit = 2; bit <= last_bit; bit *= 2) value += __shfl_xor_sync(kAllLanes, value, bit);
  return value;
}
__device__ inline float row_max(float value) {
  for (int bit = 2; bit <= 8; bit *= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, bit));
  return value;
}

/// 2^x by the special function unit: 2 ulp, 2^-inf = 0.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// A rows x Cols tile of fp32 in shared memory. Its 16-byte chunks are permuted inside groups of eight by the
/// row, so that eight rows read at one column, or eight columns of one row, lie in different banks.
template <int Cols>
struct SharedTile {
  static_assert(Cols % 32 == 0, "a row is made of groups of eight 16-byte chunks");
  float* data;

  __device__ float* chunk(int row, int index) const { return data + row * Cols + ((index ^ (row & 7)) << 2); }
  __device__ float4 load(int row, int index) const { return *reinterpret_cast<float4*>(chunk(row, index)); }
  __device__ float& at(int row, int col) const {
    if (planted(GpuBug::simt_swizzle_wrong)) return data[row * Cols + col];
    return chunk(row, col >> 2)[col & 3];
  }
};

/// Rows of one head of a tensor, from `first_row` on: `rows` of them exist, each of `cols` elements.
template <typename Element>
struct GlobalRows {
  Element* data;
  std::int64_t row_stride;
  int rows;
  int cols;

  __device__ GlobalRows(const DeviceTensor& tensor, int batch, int head, int first_row, int seqlen, int cols)
      : data(tensor.head<Element>(batch, head) + first_row * tensor.row_stride),
        row_stride(tensor.row_stride),
        rows(seqlen - first_row),
        cols(cols) {}
  __device__ Element* at(int row, int col) const { return data + row * row_stride + col; }
  /// Whether chunks of four elements are whole and aligned to their size.
  __device__ bool quads() const { return cols % 4 == 0 && row_stride % 4 == 0; }
};

/// Rows of a tensor of queries from `first_query` on, head_dim wide, and of a row statistic.
template <typename Element>
__device__ inline GlobalRows<Element> query_rows(const KernelArguments& args, TensorName name, int batch,
                                                 int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, args.head_dim};
}
template <typename Element>
__device__ inline GlobalRows<Element> statistic_rows(const KernelArguments& args, TensorName name, int batch,
                                                     int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, 1};
}
/// Rows of a tensor of keys from `first_key` on.
template <typename Element>
__device__ inline GlobalRows<Element> key_rows(const KernelArguments& args, TensorName name, int batch,
                                               int kv_head, int first_key) {
  return {args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim};
}

/// Four neighbouring elements of a type, aligned to be moved at once.
template <typename Element>
struct alignas(4 * sizeof(Element)) ElementQuad {
  Element x[4];
};

/// The same as it comes from memory. Loads of these can all be on their way at once; one that is taken apart
/// where it is loaded makes the next one wait for it.
template <typename Element>
using RawQuad = std::conditional_t<sizeof(Element) == 4, float4, uint2>;

template <typename Element>
__device__ inline float4 widen_quad(RawQuad<Element> raw) {
  if constexpr (sizeof(Element) == 4) {
    return raw;
  } else {
    const auto quad = *reinterpret_cast<const ElementQuad<std::remove_const_t<Element>>*>(&raw);
    return {widen(quad.x[0]), widen(quad.x[1]), widen(quad.x[2]), widen(quad.x[3])};
  }
}

/// Four neighbouring columns of a row; zeros beyond the matrix. Only where source.quads().
template <typename Element>
__device__ inline RawQuad<Element> load_raw(const GlobalRows<Element>& source, int row, int col) {
  if (row >= source.rows || col >= source.cols) return {};
  return *reinterpret_cast<const RawQuad<Element>*>(source.at(row, col));
}

/// Four neighbouring columns of a row, widened; zeros beyond the matrix.
template <typename Element>
__device__ inline float4 load_quad(const GlobalRows<Element>& source, int row, int col) {
  if (row >= source.rows || col >= source.cols) return {0.0f, 0.0f, 0.0f, 0.0f};
  if (source.quads()) return widen_quad<Element>(load_raw(source, row, col));
  float each[4] = {};
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (col + x < source.cols) each[x] = widen(*source.at(row, col + x));
  }
  return {each[0], each[1], each[2], each[3]};
}

/// Four neighbouring columns of a row to slow memory, rounded, clipped to the matrix.
template <typename Element>
__device__ inline void store_quad(const GlobalRows<Element>& target, int row, int col, float4 value) {
  if ((row >= target.rows && !planted(GpuBug::simt_tail_unguarded)) || col >= target.cols) return;
  const ElementQuad<Element> quad = {narrow<Element>(value.x), narrow<Element>(value.y),
                                     narrow<Element>(value.z), narrow<Element>(value.w)};
  if (target.quads()) {
    *reinterpret_cast<ElementQuad<Element>*>(target.at(row, col)) = quad;
    return;
  }
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (col + x < target.cols) *target.at(row, col + x) = quad.x[x];
  }
}

/// One 16-byte chunk of a tile from slow memory.
template <typename Element>
__device__ inline void load_chunk(float* destination, const GlobalRows<Element>& source, int row, int col) {
  if constexpr (sizeof(Element) == 4) {
    for (int x = 0; x < 4; ++x) {
      const bool valid = row < source.rows && col + x < source.cols;
      __pipeline_memcpy_async(destination + x, valid ? source.at(row, col + x) : source.data, 4,
                              valid ? 0 : 4);
    }
  } else {
    *reinterpret_cast<float4*>(destination) = load_quad(source, row, col);
  }
}

/// A group's part of a Rows x Cols tile, quad by quad.
template <int Rows, int Cols>
struct TileShare {
  static constexpr int kChunks = Cols / 4, kRowStep = kThreads / kChunks;
  __device__ static int row(int i) { return thread_in_group() / kChunks + i * kRowStep; }
  __device__ static int chunk() { return thread_in_group() % kChunks; }
};

/// `Count` quads of a thread's share of a tile, from number `first` on, on their way through registers.
template <int Rows, int Cols, int Count, typename Element>
struct QuadsInFlight {
  RawQuad<Element> x[Count];
  using Share = TileShare<Rows, Cols>;

  __device__ void fetch(const GlobalRows<const Element>& source, int first = 0) {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      x[i] = load_raw<const Element>(source, Share::row(first + i), 4 * Share::chunk());
    }
  }
  __device__ void land(SharedTile<Cols> tile, int first = 0) const {
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      *reinterpret_cast<float4*>(tile.chunk(Share::row(first + i), Share::chunk())) =
          widen_quad<Element>(x[i]);
    }
  }
};

/// A group copies Rows x Cols from slow memory, widened to fp32; what lies beyond the matrix becomes zero.
/// Asynchronous for fp32 (await with __pipeline_wait_prior), whole when it returns otherwise; both need a
/// barrier after.
template <int Rows, int Cols, typename Element>
__device__ inline void load_tile(SharedTile<Cols> tile, const GlobalRows<Element>& source) {
  using Share = TileShare<Rows, Cols>;
  constexpr int kRowStep = Share::kRowStep;
  const int first_row = Share::row(0), chunk = Share::chunk();
  if (first_row >= kRowStep) return;  // 128 threads are no multiple of 24 chunks: some rest
  if (sizeof(Element) == 4 && source.quads()) {
    const bool inside = 4 * chunk < source.cols;
    const Element* next = inside ? source.at(first_row, 4 * chunk) : source.data;
    const std::int64_t stride = inside ? kRowStep * source.row_stride : 0;
#pragma unroll
    for (int step = 0; step < Rows; step += kRowStep, next += stride) {
      const int row = first_row + step;
      if (Rows % kRowStep != 0 && row >= Rows) break;
      const bool valid = inside && row < source.rows;
      __pipeline_memcpy_async(tile.chunk(row, chunk), valid ? next : source.data, 16, valid ? 0 : 16);
    }
    return;
  }
  if constexpr (sizeof(Element) < 4) {
    constexpr int kQuads = Rows / kRowStep, kAtOnce = kQuads < 8 ? kQuads : 8;
    static_assert(Rows % kRowStep == 0 && kQuads % kAtOnce == 0, "every thread has as many quads");
    if (source.quads()) {
#pragma unroll
      for (int first = 0; first < kQuads; first += kAtOnce) {
        QuadsInFlight<Rows, Cols, kAtOnce, std::remove_const_t<Element>> quads;
        quads.fetch(source, first);
        quads.land(tile, first);
      }
      return;
    }
  }
#pragma unroll 1
  for (int row = first_row; row < Rows; row += kRowStep) {
    load_chunk(tile.chunk(row, chunk), source, row, 4 * chunk);
  }
}

/// A tile of the next step, on its way while this one is computed. 16-bit elements must be widened on the way
/// and cannot be copied asynchronously, so they wait in registers; fp32 tiles start when their room is free.
template <int Rows, int Cols, typename Element>
class TileAhead {
 public:
  using Source = GlobalRows<const Element>;

  __device__ void fetch(const Source& source) {
    if constexpr (kInRegisters) {
      if (source.quads()) quads_.fetch(source);
    }
  }
  /// Into shared memory; `source` is that of the last fetch. As load_tile, needs a wait and a barrier after.
  __device__ void land(SharedTile<Cols> tile, const Source& source) const {
    if (kInRegisters && source.quads()) {
      quads_.land(tile);
    } else {
      load_tile<Rows>(tile, source);
    }
  }

 private:
  static constexpr bool kInRegisters = sizeof(Element) < 4;
  QuadsInFlight<Rows, Cols, kInRegisters ? Rows / TileShare<Rows, Cols>::kRowStep : 1, Element> quads_;
};

/// Adds four neighbouring columns to an fp32 accumulator in slow memory. The order of the adds is free.
__device__ inline void reduce_quad(const GlobalRows<float>& target, int row, int col, float4 value) {
  if (row >= target.rows || col >= target.cols) return;
  if (planted(GpuBug::simt_reduction_overwrites)) return store_quad(target, row, col, value);
#if __CUDA_ARCH__ >= 900
  if (target.quads()) {
    atomicAdd(reinterpret_cast<float4*>(target.at(row, col)), value);
    return;
  }
#endif
  const float each[4] = {value.x, value.y, value.z, value.w};
  for (int x = 0; x < 4 && col + x < target.cols; ++x) atomicAdd(target.at(row, col + x), each[x]);
}

__device__ inline void multiply_add(float4& sum, float a, float4 b) {
  sum.x = fmaf(a, b.x, sum.x);
  sum.y = fmaf(a, b.y, sum.y);
  sum.z = fmaf(a, b.z, sum.z);
  sum.w = fmaf(a, b.w, sum.w);
}

/// This thread's part of a Rows x Cols product of dot products: rows first_row + 4 i, columns lane.col + 8 j.
template <int Rows, int Cols>
struct DotTile {
  float x[Rows / (kWarps * kLaneRows)][Cols / kLaneCols];
};
/// This thread's part of a Rows x Cols accumulator: rows first_row + 4 i, columns 4 (lane.col + 8 j) ... + 3.
template <int Rows, int Cols>
struct QuadTile {
  static constexpr int kRowsHere = Rows / (kWarps * kLaneRows), kQuadsHere = Cols / (4 * kLaneCols);
  float4 x[kRowsHere][kQuadsHere];
  __device__ static int row(Lane lane, int i) { return lane.first_row<Rows>() + kLaneRows * i; }
  __device__ static int col(Lane lane, int j) { return 4 * (lane.col + kLaneCols * j); }
};
/// The same for the product of a transposed matrix, whose rows are read four at a time: a thread has quads of
/// neighbouring rows, and where the columns allow it two warps share the rows and two the columns.
template <int Rows, int Cols>
struct TransposedQuadTile {
  static constexpr int kWarpCols = Cols % (8 * kLaneCols) == 0 ? 2 : 1, kWarpRows = kWarps / kWarpCols;
  static constexpr int kRowsHere = Rows / (kWarpRows * kLaneRows);
  static constexpr int kQuadsHere = Cols / (kWarpCols * 4 * kLaneCols);
  static_assert(kRowsHere % 4 == 0, "a thread's rows come in quads");
  float4 x[kRowsHere][kQuadsHere];
  __device__ static int row(Lane lane, int i) {
    return lane.warp % kWarpRows * (Rows / kWarpRows) + 4 * (lane.row + kLaneRows * (i / 4)) + i % 4;
  }
  __device__ static int col(Lane lane, int j) {
    return lane.warp / kWarpRows * (Cols / kWarpCols) + 4 * (lane.col + kLaneCols * j);
  }
};

/// result = a b^T, with a (Rows x Depth) and b (Cols x Depth).
template <int Rows, int Cols, int Depth>
__device__ inline void multiply_nt(Lane lane, SharedTile<Depth> a, SharedTile<Depth> b,
                                   DotTile<Rows, Cols>& result) {
  constexpr int kRowsHere = Rows / (kWarps * kLaneRows), kColsHere = Cols / kLaneCols;
  const int first_row = lane.first_row<Rows>();
  result = {};
#pragma unroll(kRowsHere* kColsHere >= 32 ? 1 : 2)
  for (int chunk = 0; chunk < Depth / 4; ++chunk) {
    float4 row[kRowsHere];
#pragma unroll
    for (int i = 0; i < kRowsHere; ++i) row[i] = a.load(first_row + kLaneRows * i, chunk);
#pragma unroll
    for (int j = 0; j < kColsHere; ++j) {
      const float4 col = b.load(lane.col + kLaneCols * j, chunk);
#pragma unroll
      for (int i = 0; i < kRowsHere; ++i) {
        float sum = result.x[i][j];
        sum = fmaf(row[i].x, col.x, sum);
        sum = fmaf(row[i].y, col.y, sum);
        sum = fmaf(row[i].z, col.z, sum);
        result.x[i][j] = fmaf(row[i].w, col.w, sum);
      }
    }
  }
}

/// sum += a b, with a (Rows x Depth) and b (Depth x Cols).
template <int Rows, int Depth, int Cols>
__device__ inline void multiply_nn(Lane lane, SharedTile<Depth> a, SharedTile<Cols> b,
                                   QuadTile<Rows, Cols>& sum) {
  constexpr int kRowsHere = Rows / (kWarps * kLaneRows), kQuadsHere = Cols / (4 * kLaneCols);
  const int first_row = lane.first_row<Rows>();
#pragma unroll 1
  for (int chunk = 0; chunk < Depth / 4; ++chunk) {
    float4 row[kRowsHere];
#pragma unroll
    for (int i = 0; i < kRowsHere; ++i) row[i] = a.load(first_row + kLaneRows * i, chunk);
#pragma unroll
    for (int x = 0; x < 4; ++x) {
#pragma unroll
      for (int j = 0; j < kQuadsHere; ++j) {
        const float4 quad = b.load(chunk * 4 + x, lane.col + kLaneCols * j);
#pragma unroll
        for (int i = 0; i < kRowsHere; ++i) {
          const float factor = x == 0 ? row[i].x : x == 1 ? row[i].y : x == 2 ? row[i].z : row[i].w;
          multiply_add(sum.x[i][j], factor, quad);
        }
      }
    }
  }
}

/// sum += a^T b, with a (Depth x Width), of which Rows columns from `first_col` on take part, and b (Depth x
/// Cols).
template <int Rows, int Depth, int Width, int Cols>
__device__ inline void multiply_tn(Lane lane, SharedTile<Width> a, SharedTile<Cols> b,
                                   TransposedQuadTile<Rows, Cols>& sum, int first_col = 0) {
  using Sum = TransposedQuadTile<Rows, Cols>;
  const int first_chunk = (first_col + Sum::row(lane, 0)) / 4, first_col_chunk = Sum::col(lane, 0) / 4;
#pragma unroll(Sum::kRowsHere* Sum::kQuadsHere >= 16 ? 1 : 2)
  for (int k = 0; k < Depth; ++k) {
    float4 rows[Sum::kRowsHere / 4];
#pragma unroll
    for (int i = 0; i < Sum::kRowsHere / 4; ++i) rows[i] = a.load(k, first_chunk + kLaneRows * i);
#pragma unroll
    for (int j = 0; j < Sum::kQuadsHere; ++j) {
      const float4 quad = b.load(k, first_col_chunk + kLaneCols * j);
#pragma unroll
      for (int i = 0; i < Sum::kRowsHere / 4; ++i) {
        multiply_add(sum.x[4 * i][j], rows[i].x, quad);
        multiply_add(sum.x[4 * i + 1][j], rows[i].y, quad);
        multiply_add(sum.x[4 * i + 2][j], rows[i].z, quad);
        multiply_add(sum.x[4 * i + 3][j], rows[i].w, quad);
      }
    }
  }
}

/// Writes a product of dot products into shared memory, for a later product along its columns.
template <int Rows, int Cols>
__device__ inline void put(Lane lane, SharedTile<Cols> tile, const DotTile<Rows, Cols>& values) {
  const int first_row = lane.first_row<Rows>();
#pragma unroll
  for (int i = 0; i < Rows / (kWarps * kLaneRows); ++i) {
#pragma unroll
    for (int j = 0; j < Cols / kLaneCols; ++j) {
      tile.at(first_row + kLaneRows * i, lane.col + kLaneCols * j) = values.x[i][j];
    }
  }
}

}  // namespace tilescope::simt
