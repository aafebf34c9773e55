// SPDX-License-Identifier: Apache-2.0
// Tiles of the CUDA-core kernels: swizzled fp32 tiles in shared memory, the lanes that share them, and their
// way from slow memory.
#pragma once

#include <cuda_pipeline.h>

#include <cstdint>

#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/cuda_cores/cta_shape.hpp"
#include "gpu/primitives/cuda_cores/global_rows.cuh"

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

}  // namespace tilescope::cuda_cores
