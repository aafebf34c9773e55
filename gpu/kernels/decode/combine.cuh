// SPDX-License-Identifier: Apache-2.0
// The pass that combines, of every kernel that splits keys: the results of the splits, each weighted by
// exp(LSE), as they come. A split in which a row sees no key, LSE = -inf, changes no bit of it: so a row's
// result does not depend on how many splits the longest sequence of the batch has.
#pragma once

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/rows.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm80/mma.cuh"
#include "gpu/primitives/sm90/fences.cuh"

namespace tilescope::sm80 {

/// Four columns of a row of O, relative to the largest LSE so far.
struct CombinedColumns {
  float max = kMinusInfinity, sum = 0.0f;
  float4 out = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ void add(const float4& part, float lse) {
    const float new_max = fmaxf(max, lse), from = new_max == kMinusInfinity ? 0.0f : new_max;
    const float before = exp2_approx((max - from) * kLog2E), here = exp2_approx((lse - from) * kLog2E);
    max = new_max;
    sum = fmaf(sum, before, here);
    out = {fmaf(out.x, before, part.x * here), fmaf(out.y, before, part.y * here),
           fmaf(out.z, before, part.z * here), fmaf(out.w, before, part.w * here)};
  }
};

/// CTA: one q tile, a thread for each four columns of its rows. Partial results are read past L1, once.
/// @tparam kColumns  of O: compiled
template <ElementType kType, int kColumns>
__global__ __launch_bounds__(Decode::combine_threads(kColumns),
                             1) void decode_combine(const __grid_constant__ KernelArguments args,
                                                    const __grid_constant__ DecodeArguments decode) {
  constexpr int kLanes = kColumns / 4, kRows = combined_rows(kColumns), kThreads = kLanes * kRows;
  constexpr int kAtOnce = 64;  // splits whose LSE is loaded together
  // Partial results that a thread has asked for: as many as its registers hold. The first of them are under
  // way beside LSE: what a few q tiles of many splits wait for is latency alone.
  constexpr int kInFlight = kColumns <= 64 ? 32 : kColumns <= 128 ? 16 : 8;
  constexpr int kLseLoads = ceil_div(kAtOnce * kRows, kThreads);
  __shared__ float row_values[kAtOnce][kRows];  // by one warp: a row's 4 bytes would be a part of a sector
  gpu::sm90::wait_for_kernel_before();
  const int thread = static_cast<int>(threadIdx.x), row = thread / kLanes, col = thread % kLanes * 4;
  const DecodeRows rows(args, decode, decode_work(args, decode), kRows);
  const bool exists = rows.has(row) && col < decode.columns;
  const DeviceTensor& parts = args[TensorName::out_partial];
  CombinedColumns columns;
#pragma unroll 1
  for (int first = 0; first < decode.splits.count; first += kAtOnce) {
    const int here = min(kAtOnce, decode.splits.count - first);
    float lse[kLseLoads] = {};
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      const int split = (thread + i * kThreads) / kRows, of = thread % kRows;
      if (rows.has(of) && split < here)
        lse[i] = __ldcg(rows.at(args[TensorName::lse_partial], decode, first + split, of));
    }
    const float* part = rows.at(parts, decode, first, exists ? row : 0) + col;
    float4 loaded[kInFlight] = {};
    const auto load = [&](int i) {
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        const float* at = part + (i + j) * decode.batch * parts.batch_stride;
        if (exists && i + j < here) loaded[j] = __ldcg(reinterpret_cast<const float4*>(at));
      }
    };
    load(0);
#pragma unroll
    for (int i = 0; i < kLseLoads; ++i) {
      const int split = (thread + i * kThreads) / kRows;
      if (split < kAtOnce) row_values[split][thread % kRows] = lse[i];
    }
    __syncthreads();
#pragma unroll 1
    for (int i = 0; exists && i < here; i += kInFlight) {
      if (i > 0) load(i);
#pragma unroll
      for (int j = 0; j < kInFlight; ++j) {
        if (i + j < here) columns.add(loaded[j], row_values[i + j][row]);
      }
    }
    __syncthreads();
  }
  if (exists) {
    const float normaliser = inverse_sum(columns.sum);
    const float4 x = columns.out;
    *reinterpret_cast<uint2*>(rows.at<std::uint16_t>(args[TensorName::out], row) + col) = {
        pack<kType>(x.x * normaliser, x.y * normaliser), pack<kType>(x.z * normaliser, x.w * normaliser)};
    if (col == 0) row_values[0][row] = row_lse(columns.max, 1.0f, columns.sum);
  }
  __syncthreads();
  if (thread < kRows && rows.has(thread))
    *rows.at<float>(args[TensorName::lse], thread) = row_values[0][thread];
}

}  // namespace tilescope::sm80
