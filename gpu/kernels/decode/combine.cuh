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

inline constexpr int kFewSplits = 16;

/// A pass's constants. Sums of a row are those of kSums of its splits' sequences, s = i mod kSums, whoever
/// adds them.
/// @tparam kColumns  of O: compiled  @tparam kFew  no more splits than kFewSplits: then there may be many q
/// tiles, whose CTAs share an SM
template <int kColumns, bool kFew>
struct CombineShape {
  static constexpr int kLanes = kColumns / 4, kRows = combined_rows(kColumns), kThreads = kLanes * kRows;
  static constexpr int kSums = kColumns > 128 ? 2 : 4;
  static constexpr int kAtOnce = kFew ? kFewSplits : 128;  // splits whose LSE is loaded together
  /// Partial results that a thread has asked for: as many as its registers hold.
  static constexpr int kInFlight = kColumns > 256 ? 6 : kFew || kColumns > 128 ? 4 : kColumns > 64 ? 12 : 32;
  static constexpr int kCtasPerSm = kFew ? 1024 / kThreads : 1;
};

/// What a split's result is multiplied by, relative to `from`.
__device__ __forceinline__ float split_weight(float lse, float from) {
  return exp2_approx((lse - from) * kLog2E);
}

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
    for (int i = lane; i < count; i += 32) weights += values[i] = split_weight(values[i], from);
#pragma unroll
    for (int other = 16; other > 0; other /= 2) weights += __shfl_xor_sync(~0u, weights, other);
    const float before = split_weight(max, from);
    max = new_max;
    sum = fmaf(sum, before, weights);
    return before;
  }
};

/// The same of a few splits by a thread alone, in the order in which a warp adds.
/// @returns what their weights are relative to
__device__ __forceinline__ float add_few(const float* values, int count, float& max, float& sum) {
  constexpr int kHalf = kFewSplits / 2;
  const auto lse = [&](int i) { return i < count ? values[i] : kMinusInfinity; };
#pragma unroll
  for (int i = 0; i < kFewSplits; ++i) max = fmaxf(max, lse(i));
  const float from = max == kMinusInfinity ? 0.0f : max;
  float weights[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i)
    weights[i] = split_weight(lse(i), from) + split_weight(lse(i + kHalf), from);
#pragma unroll
  for (int other = kHalf / 2; other > 0; other /= 2) {
#pragma unroll
    for (int i = 0; i < other; ++i) weights[i] += weights[i + other];
  }
  sum = weights[0];
  return from;
}

/// What a CTA's threads share.
template <typename Shape>
struct CombineMemory {
  float weights[Shape::kRows][Shape::kAtOnce + 1];  // LSE before: a column apart, so that banks differ
  float before[Shape::kRows];                       // what sums of earlier splits are multiplied by
  float4 parts[Shape::kThreads];
  float max[Shape::kRows], sum[Shape::kRows];
};

/// What a thread reads of the first split, and how far it is to the next.
struct SplitRows {
  const float *lse, *part;
  std::int64_t lse_stride, part_stride;
  bool has_lse, has_part;
};

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
__device__ __forceinline__ float4 multiply_add(const float4& a, float b, const float4& c) {
  return {fmaf(a.x, b, c.x), fmaf(a.y, b, c.y), fmaf(a.z, b, c.z), fmaf(a.w, b, c.w)};
}

/// Four columns of a row: the weighted sum over every kParts-th split, from `part` on. Partial results are
/// read past L1, once; the first of them are under way beside LSE.
template <typename Shape, bool kFew, int kParts>
__device__ __forceinline__ float4 weighted_columns(const SplitRows& from, int splits, int rows,
                                                   CombineMemory<Shape>& shared, int row, int part) {
  constexpr int kOwn = Shape::kSums / kParts, kAtOnce = Shape::kAtOnce;
  constexpr int kInFlight = min_of(Shape::kInFlight, kAtOnce / kParts);
  constexpr int kRows = Shape::kRows, kWarps = Shape::kThreads / 32, kWarpRows = ceil_div(kRows, kWarps);
  constexpr int kLseLoads = ceil_div(kAtOnce * kRows, Shape::kThreads);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  CombinedRow of_warp[kWarpRows];
  float4 sums[kOwn] = {};
#pragma unroll 1
  for (int first = 0; first < (kFew ? 1 : splits); first += kAtOnce) {
    const int here = min(kAtOnce, splits - first);
    float lse[kLseLoads];
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      const int split = (thread + i * Shape::kThreads) / kRows;
      if (from.has_lse && split < here) lse[i] = __ldcg(from.lse + (first + split) * from.lse_stride);
    }
    float4 loaded[kInFlight];
    const auto load = [&](int begin) {
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int split = begin + part + kParts * j;
        if (split < here)
          loaded[j] = __ldcg(reinterpret_cast<const float4*>(from.part + (first + split) * from.part_stride));
      }
    };
    if (from.has_part) load(0);  // a branch, so that idle warps issue nothing
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      const int split = (thread + i * Shape::kThreads) / kRows;
      if (split < kAtOnce) shared.weights[thread % kRows][split] = lse[i];
    }
    __syncthreads();
    float relative_to = 0.0f;  // of a few splits, whose weights a thread finds itself
    if constexpr (kFew) {
      float max = kMinusInfinity, sum = 0.0f;
      if (from.has_part) relative_to = add_few(shared.weights[row], here, max, sum);
      if (from.has_part && part == 0 && thread % Shape::kLanes == 0)
        shared.max[row] = max, shared.sum[row] = sum;
    } else {
#pragma unroll
      for (int i = 0; i < kWarpRows; ++i) {
        const int of = warp + i * kWarps;
        if (of >= rows) continue;
        const float before = of_warp[i].add(shared.weights[of], here, lane);
        if (lane == 0) shared.before[of] = before;
      }
      __syncthreads();
      const float before = from.has_part ? shared.before[row] : 0.0f;
#pragma unroll
      for (float4& sum : sums) sum = multiply_add(sum, before, {});
    }
#pragma unroll 1
    for (int begin = 0; from.has_part && begin < here; begin += kParts * kInFlight) {
      if (begin > 0) load(begin);
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const int split = begin + part + kParts * j;
        if (split >= here) continue;
        const float stored = shared.weights[row][split];
        sums[j % kOwn] =
            multiply_add(loaded[j], kFew ? split_weight(stored, relative_to) : stored, sums[j % kOwn]);
      }
    }
    if constexpr (!kFew) __syncthreads();
  }
#pragma unroll
  for (int i = 0; !kFew && i < kWarpRows; ++i) {
    const int of = warp + i * kWarps;
    if (of < rows && lane == 0) shared.max[of] = of_warp[i].max, shared.sum[of] = of_warp[i].sum;
  }
  // Of splits 0 and 2 mod 4, then those of 1 and 3, whoever has them.
  if constexpr (kOwn == 4) return (sums[0] + sums[2]) + (sums[1] + sums[3]);
  if constexpr (kOwn == 2) return sums[0] + sums[1];
  return sums[0];
}

/// CTA: one q tile; of its rows, each a thread for four columns, or several that have every second or fourth
/// split.
/// @tparam kColumns  of O: compiled
template <ElementType kType, int kColumns, bool kFew>
__global__ __launch_bounds__(
    Decode::combine_threads(kColumns),
    CombineShape<kColumns,
                 kFew>::kCtasPerSm) void decode_combine(const __grid_constant__ KernelArguments args,
                                                        const __grid_constant__ DecodeArguments decode) {
  using Shape = CombineShape<kColumns, kFew>;
  constexpr int kRows = Shape::kRows, kLanes = Shape::kLanes;
  __shared__ CombineMemory<Shape> shared;
  const int thread = static_cast<int>(threadIdx.x), slot = thread / kLanes, col = thread % kLanes * 4;
  const DecodeRows rows(args, decode, decode_work(args, decode), kRows);
  const int count = min(rows.count, kRows);
  const int parts = Shape::kSums * count <= kRows ? Shape::kSums : 2 * count <= kRows ? 2 : 1;
  const int row = slot / parts, part = slot % parts, lse_row = thread % kRows;
  const DeviceTensor &out_partial = args[TensorName::out_partial],
                     &lse_partial = args[TensorName::lse_partial];
  SplitRows from;
  from.has_part = row < count && col < decode.columns;
  from.has_lse = lse_row < count;
  from.part = rows.at(out_partial, decode, 0, from.has_part ? row : 0) + col;
  from.lse = rows.at(lse_partial, decode, 0, from.has_lse ? lse_row : 0);
  from.part_stride = decode.batch * out_partial.batch_stride;
  from.lse_stride = decode.batch * lse_partial.batch_stride;
  gpu::sm90::wait_for_kernel_before();
  const auto sum_of = [&]<int kParts>() {
    return weighted_columns<Shape, kFew, kParts>(from, decode.splits.count, count, shared, row, part);
  };
  float4 x = parts == Shape::kSums ? sum_of.template operator()<Shape::kSums>()
             : parts == 2          ? sum_of.template operator()<2>()
                                   : sum_of.template operator()<1>();
  shared.parts[thread] = x;
  __syncthreads();
  if (from.has_part && part == 0) {
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
