// SPDX-License-Identifier: Apache-2.0
// Tiles of the CUDA-core kernels: swizzled fp32 tiles in shared memory, and their ways from and to slow
// memory.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/element.cuh"
#include "gpu/primitives/common/reduce_add.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/cuda_cores/cta_shape.hpp"

namespace tilescope::cuda_cores {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

extern __shared__ float4 dynamic_shared[];
__device__ inline float* shared_memory() { return reinterpret_cast<float*>(dynamic_shared); }

/// threadIdx.x, read where it is asked for: what is derived from it would otherwise be kept in registers from
/// one product to the next, which have better use for them.
__device__ inline int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
/// Most CTAs are four warps; larger ones are groups of four.
__device__ inline int thread_in_group() { return thread_index() % kThreads; }
__device__ inline int group_of_thread() { return static_cast<int>(threadIdx.x) / kThreads; }

/// This thread's place among the warps that share a product. A warp is a grid of 4 x 8 lanes; lanes that
/// differ in bit 0 differ in row, in bit 1 in column, so that of the two operands of a product each is shared
/// by neighbouring lanes, and a 16-byte load of either takes two passes through shared memory instead of
/// four.
struct Lane {
  int warp, row, col;
  /// Bits of a lane's number: the upper one of its row, the middle one of its column.
  static constexpr int kRowBit1 = 16, kColBit1 = 4;
  /// Among the four warps of this thread's group.
  __device__ static Lane in_group() {
    const int thread = thread_index();
    return of(thread / 32 % kWarps, thread);
  }
  /// Among all warps of the CTA.
  __device__ static Lane in_cta() {
    const int thread = thread_index();
    return of(thread / 32, thread);
  }

 private:
  __device__ static Lane of(int warp, int thread) {
    return {warp, (thread & 1) | (thread >> 4 & 1) << 1, (thread >> 1) & 7};
  }
};

/// Sum and maximum over the eight lanes that share a row.
__device__ inline float row_sum(float value) {
  for (int bit = 2; bit <= 8; bit *= 2) value += __shfl_xor_sync(kAllLanes, value, bit);
  return value;
}
__device__ inline float row_max(float value) {
  for (int bit = 2; bit <= 8; bit *= 2) value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, bit));
  return value;
}

/// A rows x Cols tile of fp32 in shared memory. Its 16-byte chunks are permuted inside groups of eight by the
/// row's number in fours: four rows on have one address and fixed distances, and eight rows that lie four
/// apart, read at one column, lie in different banks, as do eight columns of one row.
template <int Cols>
struct SharedTile {
  static_assert(Cols % 32 == 0, "a row is made of groups of eight 16-byte chunks");
  float* data;

  __device__ float* chunk(int row, int index) const {
    return data + row * Cols + ((index ^ (row >> 2 & 7)) << 2);
  }

  /// Addresses along a row, or down a column in steps of four rows, two instructions each: the permutation is
  /// kept apart from the address, both in bytes.
  struct Walk {
    const char* start;
    int permuted;  // chunk inside its group of eight, or the row's permutation [bytes]
    /// The same walk with every chunk's number changed by these bits.
    __device__ Walk from(int bits) const { return {start, permuted ^ bits * 16}; }
    __device__ const float* along(int index) const {
      return reinterpret_cast<const float*>(start + (permuted ^ index * 16));
    }
    __device__ const float* down(int four_rows) const {
      return reinterpret_cast<const float*>(start + four_rows * (16 * Cols) +
                                            (permuted ^ (four_rows * 16 & 112)));
    }
  };
  __device__ Walk row(int row) const {
    return {reinterpret_cast<const char*>(data + row * Cols), (row >> 2 & 7) * 16};
  }
  __device__ Walk column(int chunk) const {
    return {reinterpret_cast<const char*>(data + (chunk & ~7) * 4), (chunk & 7) * 16};
  }
};
__device__ inline float4 load_chunk(const float* chunk) { return *reinterpret_cast<const float4*>(chunk); }

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

/// Rows of a tensor of queries from `first_query` on, head_dim wide, and of LSE, delta, m or l.
template <typename Element>
__device__ inline GlobalRows<Element> query_rows(const KernelArguments& args, TensorName name, int batch,
                                                 int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, args.head_dim};
}
template <typename Element>
__device__ inline GlobalRows<Element> row_values(const KernelArguments& args, TensorName name, int batch,
                                                 int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, 1};
}
/// Rows of a tensor of keys from `first_key` on.
template <typename Element>
__device__ inline GlobalRows<Element> key_rows(const KernelArguments& args, TensorName name, int batch,
                                               int kv_head, int first_key) {
  return {args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim};
}
/// Those of K and V up to the padding of their batch entry.
template <typename Element>
__device__ inline GlobalRows<Element> key_rows(const KernelArguments& args, const VisibleBand& band,
                                               TensorName name, int batch, int kv_head, int first_key) {
  return {args[name], batch, kv_head, first_key, band.seqlen_k, args.head_dim};
}

__device__ inline float component(const float4& quad, int x) {
  return x == 0 ? quad.x : x == 1 ? quad.y : x == 2 ? quad.z : quad.w;
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

/// Rounds to the element type.
template <typename Element>
__device__ inline RawQuad<Element> narrow_quad(float4 value) {
  if constexpr (sizeof(Element) == 4) {
    return value;
  } else {
    const ElementQuad<Element> quad = {narrow<Element>(value.x), narrow<Element>(value.y),
                                       narrow<Element>(value.z), narrow<Element>(value.w)};
    return *reinterpret_cast<const RawQuad<Element>*>(&quad);
  }
}

/// Four neighbouring columns of a row; zeros beyond the matrix. Only where source.quads(). Past L1, which has
/// nothing to add to tiles in shared memory: a CTA reads each of them once.
template <typename Element>
__device__ inline RawQuad<Element> load_raw(const GlobalRows<Element>& source, int row, int col) {
  if (row >= source.rows || col >= source.cols) return {};
  return __ldcg(reinterpret_cast<const RawQuad<Element>*>(source.at(row, col)));
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

/// Four neighbouring columns of a row to slow memory, rounded, clipped to the matrix. By an intrinsic: the
/// compiler takes an assignment apart into four stores, and L1 does not put all of their sectors together
/// again.
template <typename Element>
__device__ inline void store_quad(const GlobalRows<Element>& target, int row, int col, float4 value) {
  if (row >= target.rows || col >= target.cols) return;
  if (target.quads()) {
    __stcg(reinterpret_cast<RawQuad<Element>*>(target.at(row, col)), narrow_quad<Element>(value));
    return;
  }
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (col + x < target.cols) *target.at(row, col + x) = narrow<Element>(component(value, x));
  }
}

/// Zeroes the rows of one head.
template <typename Element>
__device__ inline void zero_rows(const GlobalRows<Element>& rows, int threads) {
  const int quads = (rows.cols + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows.rows * quads; i += threads) {
    store_quad(rows, i / quads, 4 * (i % quads), {0.0f, 0.0f, 0.0f, 0.0f});
  }
}

/// LSE, delta, m or l of `Rows` neighbouring rows, 2 or 4, of which the first is a multiple of that. Eight
/// lanes that ask for the same rows, and four that ask for others, touch whole sectors.
template <int Rows>
struct RowRun {
  using Vector = std::conditional_t<Rows == 4, float4, float2>;
  static_assert(Rows == 4 || Rows == 2);
  float x[Rows];

  /// `beyond` where the matrix ends.
  __device__ static RowRun load(const GlobalRows<float>& source, int row, float beyond) {
    RowRun run;
    if (at_once(source, row)) {
      *reinterpret_cast<Vector*>(run.x) = __ldcg(reinterpret_cast<const Vector*>(source.at(row, 0)));
    } else {
#pragma unroll
      for (int i = 0; i < Rows; ++i) run.x[i] = row + i < source.rows ? *source.at(row + i, 0) : beyond;
    }
    return run;
  }
  __device__ void store(const GlobalRows<float>& target, int row) const {
    if (at_once(target, row)) {
      __stcg(reinterpret_cast<Vector*>(target.at(row, 0)), *reinterpret_cast<const Vector*>(x));
    } else {
#pragma unroll
      for (int i = 0; i < Rows; ++i) {
        if (row + i < target.rows) *target.at(row + i, 0) = x[i];
      }
    }
  }

 private:
  __device__ static bool at_once(const GlobalRows<float>& rows, int row) {
    return rows.row_stride == 1 && row + Rows <= rows.rows &&
           reinterpret_cast<std::uintptr_t>(rows.at(row, 0)) % sizeof(Vector) == 0;
  }
};

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
/// Asynchronous for fp32 in whole quads (await with __pipeline_wait_prior), whole when it returns otherwise;
/// both need a barrier after.
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
    *reinterpret_cast<float4*>(tile.chunk(row, chunk)) = load_quad(source, row, 4 * chunk);
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

/// Adds four neighbouring columns to an fp32 accumulator in slow memory.
__device__ inline void reduce_quad(const GlobalRows<float>& target, int row, int col, float4 value) {
  if (row >= target.rows || col >= target.cols) return;
  if (target.quads()) return reduce_add(target.at(row, col), value);
  const float each[4] = {value.x, value.y, value.z, value.w};
  for (int x = 0; x < 4 && col + x < target.cols; ++x) atomicAdd(target.at(row, col + x), each[x]);
}

}  // namespace tilescope::cuda_cores
