// SPDX-License-Identifier: Apache-2.0
// What gpu:decode multiplies: S = Q K^T and O += P V of a warp's keys, with K and V in shared memory in the
// type of the products, or in fp8 and widened behind ldmatrix, so that they are fp8 all the way to the
// registers.
#pragma once

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/flash2_mma/common.cuh"

namespace tilescope::sm80 {

/// K and V in the type of the products. Tiles have rows of kHeadDim numbers, of 16 bits.
/// @tparam kKeyBlocks  of 16 keys that a warp has
template <ElementType kType, int kHeadDim, int kKeyBlocks>
struct SameTypeProducts {
  static constexpr int kDBlocks = kHeadDim / 16;
  static constexpr ElementType kProbs = kType;
  static constexpr int kLog2Factor = 0;  // P is kept 2^ this times as large
  using Tile = SharedTile<kHeadDim>;
  using Scores = WarpAccumulator<1, kKeyBlocks>;
  using Out = WarpAccumulator<1, kDBlocks>;

  /// K or V, or a number of its columns, in units of 16 bits.
  __device__ static DeviceTensor halves(const DeviceTensor& tensor) { return tensor; }
  __device__ static int halves(int numbers) { return numbers; }

  __device__ __forceinline__ static void load_queries(Fragment (&q)[kDBlocks], SharedTile<kHeadDim> tile,
                                                      int lane) {
#pragma unroll
    for (int k = 0; k < kDBlocks; ++k) q[k] = LdmatrixByColumns<kHeadDim>(tile, lane).load(0, k);
  }
  __device__ __forceinline__ static void multiply_keys(Scores& s, const Fragment (&q)[kDBlocks], Tile tile,
                                                       int warp, int lane) {
    const auto view = LdmatrixByRows<kHeadDim>(tile, lane).at(kKeyBlocks * warp, 0);
#pragma unroll
    for (int k = 0; k < kDBlocks; ++k) {
      const Fragment left[1] = {q[k]};
      step_abt<kType>(s, left, view, k, AllBlocks{});
    }
  }
  __device__ __forceinline__ static void multiply_values(Out& out, const Scores& probs, Tile tile, int warp,
                                                         int lane) {
    multiply_probs<kType>(out, probs, LdmatrixByColumns<kHeadDim>(tile, lane).at(kKeyBlocks * warp, 0),
                          AllBlocks{});
  }
  /// Leaves a row of O, in the upper or lower half of its blocks.
  __device__ __forceinline__ static void leave_row(const Out& out, float* row, int half, int lane) {
#pragma unroll
    for (int j = 0; j < 2 * kDBlocks; ++j) {
      *reinterpret_cast<float2*>(row + 8 * j + 2 * (lane & 3)) = {out.tile[0][j].x[2 * half],
                                                                  out.tile[0][j].x[2 * half + 1]};
    }
  }
};

/// Two numbers of fp8e4m3 as two of kType, exact; NaN stays NaN. There is no conversion to bf16 alone.
template <ElementType kType>
__device__ __forceinline__ std::uint32_t widened(std::uint16_t pair) {
  std::uint32_t halves = 0;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#else
  __trap();  // refused by kFirstWithFp8
#endif
  if constexpr (kType == ElementType::fp16) return halves;
  const float2 values = unpack<ElementType::fp16>(halves);
  return pack<kType>(values.x, values.y);
}

/// K and V in fp8e4m3, two numbers in each 16 bits of a tile. A warp has 32 keys, a row of which each lane
/// finds for ldmatrix; a lane then gets four neighbouring numbers of a key of K, and two by two of V. So the
/// numbers of a product come in another order: of S's depth the same for Q and K, which changes no sum but
/// its order; of O's columns one that leave_row() undoes. P V is multiplied in fp16, beside bf16 queries too:
/// what fp8 becomes in one instruction, where bf16 takes four.
template <ElementType kType, int kHeadDim>
struct Fp8Products {
  static constexpr int kKeyBlocks = 2, kDBlocks = kHeadDim / 16;
  static constexpr int kWarpKeys = 16 * kKeyBlocks;
  static constexpr ElementType kProbs = ElementType::fp16;  // probs_type() and the factor of KernelScale
  static constexpr int kLog2Factor = 15;
  using Tile = SharedTile<kHeadDim / 2>;
  using Scores = WarpAccumulator<1, kKeyBlocks>;
  using Out = WarpAccumulator<1, kDBlocks>;

  __device__ static DeviceTensor halves(const DeviceTensor& tensor) {
    return {tensor.data, tensor.batch_stride / 2, tensor.head_stride / 2, tensor.row_stride / 2};
  }
  __device__ static int halves(int numbers) { return numbers / 2; }

  /// Column 4 (lane % 4) + i of a block stands where a fragment has 2 (lane % 4) + i, for i = 2, 3 + 8.
  __device__ __forceinline__ static void load_queries(Fragment (&q)[kDBlocks], SharedTile<kHeadDim> tile,
                                                      int lane) {
    const int column = lane & 3;
#pragma unroll
    for (int k = 0; k < kDBlocks; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint4 chunk = load_shared(tile.chunk_address(8 * half + (lane >> 2), 2 * k + column / 2));
        q[k].x[half] = column % 2 == 0 ? chunk.x : chunk.z;
        q[k].x[2 + half] = column % 2 == 0 ? chunk.y : chunk.w;
      }
    }
  }
  __device__ __forceinline__ static void multiply_keys(Scores& s, const Fragment (&q)[kDBlocks], Tile tile,
                                                       int warp, int lane) {
#pragma unroll
    for (int k = 0; k < kDBlocks; ++k) {
      const Fragment keys = ldmatrix(tile.chunk_address(kWarpKeys * warp + lane, k));
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // of eight keys each
        mma_m16n8k16<kType>(s.tile[0][i], q[k], widened<kType>(static_cast<std::uint16_t>(keys.x[i])),
                            widened<kType>(static_cast<std::uint16_t>(keys.x[i] >> 16)));
      }
    }
  }
  __device__ __forceinline__ static void multiply_values(Out& out, const Scores& probs, Tile tile, int warp,
                                                         int lane) {
    constexpr unsigned kEvenThenOdd = 0x3120;  // bytes: of two keys column 0, then of both column 1
    Fragment p[kKeyBlocks];
#pragma unroll
    for (int k = 0; k < kKeyBlocks; ++k) {
      p[k] = as_left_operand<kProbs>(probs.tile[0][2 * k], probs.tile[0][2 * k + 1]);
    }
#pragma unroll
    for (int j = 0; j < kDBlocks; ++j) {
      const Fragment values = ldmatrix_transposed(tile.chunk_address(kWarpKeys * warp + lane, j));
#pragma unroll
      for (int k = 0; k < kKeyBlocks; ++k) {
        const std::uint32_t first = __byte_perm(values.x[2 * k], 0, kEvenThenOdd);
        const std::uint32_t second = __byte_perm(values.x[2 * k + 1], 0, kEvenThenOdd);
        mma_m16n8k16<kProbs>(out.tile[0][2 * j], p[k], widened<kProbs>(static_cast<std::uint16_t>(first)),
                             widened<kProbs>(static_cast<std::uint16_t>(second)));
        mma_m16n8k16<kProbs>(out.tile[0][2 * j + 1], p[k],
                             widened<kProbs>(static_cast<std::uint16_t>(first >> 16)),
                             widened<kProbs>(static_cast<std::uint16_t>(second >> 16)));
      }
    }
  }
  __device__ __forceinline__ static void leave_row(const Out& out, float* row, int half, int lane) {
#pragma unroll
    for (int j = 0; j < kDBlocks; ++j) {
      const Accumulator &even = out.tile[0][2 * j], &odd = out.tile[0][2 * j + 1];
      *reinterpret_cast<float4*>(row + 16 * j + 4 * (lane & 3)) = {even.x[2 * half], odd.x[2 * half],
                                                                   even.x[2 * half + 1], odd.x[2 * half + 1]};
    }
  }
};

template <ElementType kType, DecodeShape kShape>
using DecodeProducts = std::conditional_t<kShape.fp8_keys, Fp8Products<kType, kShape.head_dim>,
                                          SameTypeProducts<kType, kShape.head_dim, kShape.warp_keys() / 16>>;

}  // namespace tilescope::sm80
