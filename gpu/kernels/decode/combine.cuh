// SPDX-License-Identifier: Apache-2.0
// The pass that combines, of every kernel that splits keys: the results of the splits, each weighted by
// exp(LSE). What a few q tiles of many splits wait for is latency alone, so all that can be asked for at once
// is, and where a q tile has few rows, several threads share a row's splits. A split in which a row sees no
// key, LSE = -inf, changes no bit of it: so a row's result does not depend on how many splits the longest
// sequence of the batch has, nor on which rows are packed beside it.
#pragma once

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/rows.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm80/mma.cuh"
#include "gpu/primitives/sm90/fences.cuh"

namespace tilescope::sm80 {

/// A pass's constants. Sums of a row are those of kSums of its splits' sequences, s = i mod kSums, whoever
/// adds them.
/// @tparam kColumns  of O: compiled
template <int kColumns>
struct CombineShape {
  static constexpr int kLanes = kColumns / 4, kRows = combined_rows(kColumns), kThreads = kLanes * kRows;
  static constexpr int kSums = 4;
  static constexpr int kAtOnce = 128;  // splits whose LSE is loaded together
  /// Partial results that a thread has asked for: as many as its registers hold.
  static constexpr int kInFlight = kColumns <= 64 ? 32 : kColumns <= 128 ? 16 : 4;
};

/// What a row's weights are relative to, and their sum, in one warp, after the splits so far.
struct CombinedRow {
  float max = kMinusInfinity, sum = 0.0f;

  /// Turns `count` values of LSE into weights. @returns what older weights are multiplied by
  __device__ __forceinline__ float add(float* values, int count, int lane) {
    float here = kMinusInfinity;
    for (int i = lane; i < count; i += 32) here = fmaxf(here, values[i]);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) here = fmaxf(here, __shfl_xor_sync(~0u, here, other));
    const float new_max = fmaxf(max, here), from = new_max == kMinusInfinity ? 0.0f : new_max;
    float weights = 0.0f;
    for (int i = lane; i < count; i += 32) weights += values[i] = exp2_approx((values[i] - from) * kLog2E);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) weights += __shfl_xor_sync(~0u, weights, other);
    const float before = exp2_approx((max - from) * kLog2E);
    max = new_max;
    sum = fmaf(sum, before, weights);
    return before;
  }
};

/// What a CTA's threads share.
template <typename Shape>
struct CombineMemory {
  float weights[Shape::kRows][Shape::kAtOnce + 1];  // LSE before: a column apart, so that banks differ
  float before[Shape::kRows];                       // what sums of earlier splits are multiplied by
  float4 parts[Shape::kThreads];
  float max[Shape::kRows], sum[Shape::kRows];
};

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Four columns of a row: the weighted sum over every kParts-th split, from `part` on. Partial results are
/// read past L1, once; the first of them are under way beside LSE.
/// @param row, col  the thread's, if it `exists`
template <typename Shape, int kParts>
__device__ __forceinline__ float4 weighted_columns(const KernelArguments& args, const DecodeArguments& decode,
                                                   const DecodeRows& rows, CombineMemory<Shape>& shared,
                                                   int row, int part, int col, bool exists) {
  constexpr int kOwn = Shape::kSums / kParts, kInFlight = Shape::kInFlight, kAtOnce = Shape::kAtOnce;
  constexpr int kRows = Shape::kRows, kWarps = Shape::kThreads / 32, kWarpRows = ceil_div(kRows, kWarps);
  constexpr int kLseLoads = kAtOnce * kRows / Shape::kThreads;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const DeviceTensor& parts = args[TensorName::out_partial];
  CombinedRow of_warp[kWarpRows];
  float4 sums[kOwn] = {};
#pragma unroll 1
  for (int first = 0; first < decode.splits.count; first += kAtOnce) {
    const int here = min(kAtOnce, decode.splits.count - first);
    float lse[kLseLoads] = {};
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      const int split = (thread + i * Shape::kThreads) / kRows, of = thread % kRows;
      if (rows.has(of) && split < here)
        lse[i] = __ldcg(rows.at(args[TensorName::lse_partial], decode, first + split, of));
    }
    const float* from = rows.at(parts, decode, first, exists ? row : 0) + col;
    float4 loaded[kInFlight];
    const auto load = [&](int begin) {
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int split = begin + part + kParts * j;
        if (exists && split < here)
          loaded[j] =
              __ldcg(reinterpret_cast<const float4*>(from + split * decode.batch * parts.batch_stride));
      }
    };
    load(0);
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      shared.weights[thread % kRows][(thread + i * Shape::kThreads) / kRows] = lse[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kWarpRows; ++i) {
      const int of = warp + i * kWarps;
      if (of >= kRows || !rows.has(of)) continue;
      const float before = of_warp[i].add(shared.weights[of], here, lane);
      if (lane == 0) shared.before[of] = before;
    }
    __syncthreads();
    if (exists) {
      const float before = shared.before[row];
#pragma unroll
      for (float4& sum : sums) sum = {sum.x * before, sum.y * before, sum.z * before, sum.w * before};
#pragma unroll 1
      for (int begin = 0; begin < here; begin += kParts * kInFlight) {
        if (begin > 0) load(begin);
#pragma unroll
        for (int j = 0; j < kInFlight; ++j) {
          const int split = begin + part + kParts * j;
          if (split >= here) break;
          const float weight = shared.weights[row][split];
          float4& sum = sums[j % kOwn];
          sum = {fmaf(loaded[j].x, weight, sum.x), fmaf(loaded[j].y, weight, sum.y),
                 fmaf(loaded[j].z, weight, sum.z), fmaf(loaded[j].w, weight, sum.w)};
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kWarpRows; ++i) {
    const int of = warp + i * kWarps;
    if (of >= kRows || lane != 0) continue;
    shared.max[of] = of_warp[i].max;
    shared.sum[of] = of_warp[i].sum;
  }
  // Of splits 0 and 2 mod 4, then those of 1 and 3, whoever has them.
  if constexpr (kParts == 1) return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  if constexpr (kParts == 2) return sums[0] + sums[1];
  return sums[0];
}

/// CTA: one q tile; of its rows, each a thread for four columns, or several that have every second or fourth
/// split.
/// @tparam kColumns  of O: compiled
template <ElementType kType, int kColumns>
__global__ __launch_bounds__(Decode::combine_threads(kColumns),
                             1) void decode_combine(const __grid_constant__ KernelArguments args,
                                                    const __grid_constant__ DecodeArguments decode) {
  using Shape = CombineShape<kColumns>;
  constexpr int kRows = Shape::kRows, kLanes = Shape::kLanes;
  __shared__ CombineMemory<Shape> shared;
  gpu::sm90::wait_for_kernel_before();
  const int thread = static_cast<int>(threadIdx.x), slot = thread / kLanes, col = thread % kLanes * 4;
  const DecodeRows rows(args, decode, decode_work(args, decode), kRows);
  const int count = min(rows.count, kRows);
  const int parts = 4 * count <= kRows ? 4 : 2 * count <= kRows ? 2 : 1;
  const int row = slot / parts, part = slot % parts;
  const bool exists = row < count && col < decode.columns;
  const auto sum_of = [&]<int kParts>() {
    return weighted_columns<Shape, kParts>(args, decode, rows, shared, row, part, col, exists);
  };
  float4 x = parts == 4   ? sum_of.template operator()<4>()
             : parts == 2 ? sum_of.template operator()<2>()
                          : sum_of.template operator()<1>();
  shared.parts[thread] = x;
  __syncthreads();
  if (exists && part == 0) {
    const float4* of = shared.parts + thread;
    if (parts == 4) x = (of[0] + of[2 * kLanes]) + (of[kLanes] + of[3 * kLanes]);
    if (parts == 2) x = of[0] + of[kLanes];
    const float normaliser = inverse_sum(shared.sum[row]);
    *reinterpret_cast<uint2*>(rows.at<std::uint16_t>(args[TensorName::out], row) + col) = {
        pack<kType>(x.x * normaliser, x.y * normaliser), pack<kType>(x.z * normaliser, x.w * normaliser)};
  }
  if (thread < count)
    *rows.at<float>(args[TensorName::lse], thread) = row_lse(shared.max[thread], 1.0f, shared.sum[thread]);
}

}  // namespace tilescope::sm80
