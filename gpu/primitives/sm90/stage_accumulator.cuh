// SPDX-License-Identifier: Apache-2.0
// From fp32 accumulators to 16-bit operands and to tiles in shared memory.
#pragma once

#include <cstdint>

#include "gpu/primitives/common/reduce_add.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/stmatrix.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::sm90 {

/// Two numbers, rounded to the nearest of the type; `low` in the low half.
template <WgmmaType kType>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (kType == WgmmaType::fp16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

/// The two numbers again.
template <WgmmaType kType>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t pair) {
  float2 numbers;
  if constexpr (kType == WgmmaType::fp16) {
    asm("{\n.reg .f16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(numbers.x), "=f"(numbers.y)
        : "r"(pair));
  } else {
    numbers = {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
  }
  return numbers;
}

/// An accumulator as the left operands of the WGMMAs that follow, its registers in place.
template <WgmmaType kType, int kCount>
__device__ __forceinline__ void pack_operands(const float (&d)[kCount], std::uint32_t (&packed)[kCount / 2]) {
#pragma unroll
  for (int i = 0; i < kCount / 2; ++i) packed[i] = pack_pair<kType>(d[2 * i], d[2 * i + 1]);
}

/// Two neighbours of an fp32 tile.
__device__ __forceinline__ void store_pair(std::uint32_t address, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(low), "f"(high) : "memory");
}

/// 16 bytes of zeros.
__device__ __forceinline__ void store_zeros(std::uint32_t address) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(address), "r"(0) : "memory");
}

/// Puts a warp's 16 rows of packed pairs into a tile, whose row 0 is the warp's first, from `first_col` on.
template <PanelTile kTile, int kPairs>
__device__ __forceinline__ void store_operand(const std::uint32_t (&pairs)[kPairs], std::uint32_t address,
                                              int first_col, int lane) {
  const Entry stored = stored_row(lane);
#pragma unroll
  for (int block = 0; block < kPairs / 4; ++block) {
    store_blocks(address + kTile.offset(stored.row, first_col + 16 * block + stored.col), pairs[4 * block],
                 pairs[4 * block + 1], pairs[4 * block + 2], pairs[4 * block + 3]);
  }
}

/// Puts a warp's 16 rows of packed pairs into 16 columns of a tile, from `first_col` on: each column of the
/// pairs becomes a row, from the tile's row 0, at `address`, on.
template <PanelTile kTile, int kPairs>
__device__ __forceinline__ void store_operand_transposed(const std::uint32_t (&pairs)[kPairs],
                                                         std::uint32_t address, int first_col, int lane) {
  const Entry stored = stored_row_transposed(lane);
#pragma unroll
  for (int block = 0; block < kPairs / 4; ++block) {
    store_blocks_transposed(address + kTile.offset(16 * block + stored.row, first_col + stored.col),
                            pairs[4 * block], pairs[4 * block + 1], pairs[4 * block + 2],
                            pairs[4 * block + 3]);
  }
}

/// Rounds a warp's 16 rows of an accumulator, kCols columns from register kFirst on, into the tile whose row
/// 0 is the warp's first, at `address`.
template <WgmmaType kType, PanelTile kTile, int kCols, int kFirst = 0, int kCount>
__device__ __forceinline__ void stage_rows(const float (&d)[kCount], std::uint32_t address, int lane) {
  static_assert(kFirst + kCols / 2 <= kCount);
  const Entry stored = stored_row(lane);
#pragma unroll
  for (int block = 0; block < kCols / 16; ++block) {
    const float* x = d + kFirst + 8 * block;
    store_blocks(address + kTile.offset(stored.row, 16 * block + stored.col), pack_pair<kType>(x[0], x[1]),
                 pack_pair<kType>(x[2], x[3]), pack_pair<kType>(x[4], x[5]), pack_pair<kType>(x[6], x[7]));
  }
}

/// Where a warp's second eight rows are stored, and how many there are of both.
struct RowHalves {
  std::int64_t apart;  // elements between a row and the one eight below
  int rows[2];
};

/// Rounds a warp's 16 rows and stores them to global memory, 16 bytes a lane: the quads exchange their pairs,
/// so that each lane holds eight neighbouring columns.
/// @param cols  that exist, of 2 kCount; cols and strides multiples of 8, target 16-byte aligned
template <WgmmaType kType, int kCount>
__device__ __forceinline__ void store_rows_direct(const float (&d)[kCount], std::uint16_t* target,
                                                  std::int64_t row_stride, const RowHalves& halves, int cols,
                                                  int lane) {
  const bool odd = lane & 1, upper = lane & 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    std::uint16_t* const row = target + half * halves.apart + lane / 4 * row_stride;
#pragma unroll
    for (int first = 0; first < kCount; first += 16) {  // of 32 columns: four groups of eight
      std::uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        x[i] = pack_pair<kType>(d[first + 4 * i + 2 * half], d[first + 4 * i + 2 * half + 1]);
      }
      // A 4 x 4 transposition: lane i of the quad ends with the four lanes' x[i].
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, odd ? x[i] : x[i + 1], 1);
        (odd ? x[i] : x[i + 1]) = got;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, upper ? x[i] : x[i + 2], 2);
        (upper ? x[i] : x[i + 2]) = got;
      }
      const int col = 2 * first + 8 * (lane % 4);
      if (lane / 4 < halves.rows[half] && col < cols) {
        *reinterpret_cast<uint4*>(row + col) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
  }
}

/// Stores a warp's 16 rows in fp32: a quad fills the sector of a row's eight columns.
/// @param cols  as of store_rows_direct()
template <int kCount>
__device__ __forceinline__ void store_rows_fp32(const float (&d)[kCount], float* target,
                                                std::int64_t row_stride, const RowHalves& halves, int cols,
                                                int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (lane / 4 >= halves.rows[half]) continue;
    float* to = target + half * halves.apart + lane / 4 * row_stride + 2 * (lane % 4);
#pragma unroll
    for (int first = 0; first < kCount; first += 4) {  // eight columns
      if (2 * first < cols) {
        *reinterpret_cast<float2*>(to + 2 * first) = {d[first + 2 * half], d[first + 2 * half + 1]};
      }
    }
  }
}

/// Adds a warp's 16 rows to fp32 sums in global memory, 16 bytes a lane: of each pair of lanes the even one
/// takes both parts of the upper row, the odd one those of the row eight below.
/// @param rows, cols  that exist, of the 16 and of 2 kCount
template <int kCount>
__device__ __forceinline__ void add_rows_direct(const float (&d)[kCount], float* target,
                                                std::int64_t row_stride, int rows, int cols, int lane) {
  const bool odd = lane & 1;
  const int row = lane / 4 + (odd ? 8 : 0);
  target += row * row_stride + 2 * (lane & 2);
#pragma unroll
  for (int first = 0; first < kCount; first += 4) {  // eight columns
    float x[4] = {d[first], d[first + 1], d[first + 2], d[first + 3]};
#pragma unroll
    for (float& number : x) asm volatile("" : "+f"(number));
    const float got[2] = {__shfl_xor_sync(0xFFFFFFFFu, odd ? x[0] : x[2], 1),
                          __shfl_xor_sync(0xFFFFFFFFu, odd ? x[1] : x[3], 1)};
    if (row >= rows || 2 * first >= cols) continue;
    reduce_add(target + 2 * first,
               odd ? make_float4(got[0], got[1], x[2], x[3]) : make_float4(x[0], x[1], got[0], got[1]));
  }
}

/// Adds a warp's 16 rows to 16 columns of fp32 sums in global memory: each column of d becomes a row. Eight
/// lanes fill a sector.
/// @param rows, cols  that exist, of 2 kCount and of 16
template <int kCount>
__device__ __forceinline__ void add_transposed_direct(const float (&d)[kCount], float* target,
                                                      std::int64_t row_stride, int rows, int cols, int lane) {
  const int col = lane / 4;
  float* first = target + 2 * (lane % 4) * row_stride + col;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int row = 8 * (i / 4) + i % 2, below = 8 * (i / 2 % 2);
    if (row + 2 * (lane % 4) < rows && col + below < cols) reduce_add(first + row * row_stride + below, d[i]);
  }
}

}  // namespace tilescope::gpu::sm90
