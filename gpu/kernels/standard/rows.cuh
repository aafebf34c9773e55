// SPDX-License-Identifier: Apache-2.0
// The passes of gpu:standard that work on whole rows of the N x N matrices: P = softmax(S) (FlashAttention,
// Algorithm 0, line 2) and dS = P * (dP - delta) (Algorithm 3, line 3). A CTA takes the rows of its q tile
// one by one; between its two phases a row stays in shared memory where it fits.
#pragma once

#include "gpu/kernels/standard/standard.hpp"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/cuda_cores/softmax.cuh"

namespace tilescope::cuda_cores {

/// Reduces one value a thread over the CTA. Every thread gets the result.
template <typename Combine>
__device__ inline float reduce_cta(float value, float* scratch, Combine combine) {
  for (int bit = 16; bit > 0; bit /= 2) value = combine(value, __shfl_xor_sync(kAllLanes, value, bit));
  __syncthreads();  // the scratch of the last reduction has been read
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
  for (int warp = 1; warp < Standard::kRowThreads / 32; ++warp) value = combine(value, scratch[warp]);
  return value;
}

/// Rows of an N x N matrix in slow memory, from one of its columns on. What fills the last sector of a row is
/// part of it: zeros, since K and V have zeros there.
template <typename Element>
__device__ inline GlobalRows<Element> matrix_rows(const KernelArguments& args, TensorName name, int batch,
                                                  int head, int first_query, int first_key = 0) {
  const int cols = static_cast<int>(args[name].row_stride) - first_key;
  GlobalRows<Element> rows = {args[name], batch, head, first_query, args.band.seqlen_q, cols};
  rows.data += first_key;
  return rows;
}

/// Calls step(key, quad of four entries) for this thread's quads of one row.
template <typename Element, typename Step>
__device__ inline void for_each_row_quad(const GlobalRows<const Element>& row, Step&& step) {
  for (int col = 4 * static_cast<int>(threadIdx.x); col < row.cols; col += 4 * Standard::kRowThreads) {
    step(col, load_quad(row, 0, col));
  }
}

/// The keys that a row sees.
struct VisibleKeys {
  int first, last;
  __device__ float select(int key, float seen, float hidden) const {
    return first <= key && key <= last ? seen : hidden;
  }
};

template <typename Element>
__global__ void __launch_bounds__(Standard::kRowThreads)
    softmax_rows(const __grid_constant__ KernelArguments args, int block_m, bool fits, float scale,
                 float scale_log2) {
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head;
  const VisibleBand& band = batch_band<true>(args, batch);
  const Standard::RowLayout layout;
  float *const scratch = shared_memory() + layout.warp_values(), *const strip =
                                                                     shared_memory() + layout.strip(0);
  const int end = min_of(args.band.seqlen_q, work.end_block * block_m);
  const auto larger = [](float a, float b) { return fmaxf(a, b); };
  const auto plus = [](float a, float b) { return a + b; };
  for (int query = work.first_block * block_m; query < end; ++query) {
    const auto scores = matrix_rows<const Element>(args, TensorName::scores, batch, head, query);
    const auto probs = matrix_rows<Element>(args, TensorName::probs, batch, head, query);
    const VisibleKeys keys{band.first_key(query), band.last_key(query)};
    const auto masked = [&](int key, float4 s) -> float4 {
      return {keys.select(key, s.x, kMinusInfinity), keys.select(key + 1, s.y, kMinusInfinity),
              keys.select(key + 2, s.z, kMinusInfinity), keys.select(key + 3, s.w, kMinusInfinity)};
    };
    float max = kMinusInfinity;
    for_each_row_quad(scores, [&](int key, float4 s) {
      s = masked(key, s);
      max = fmaxf(max, fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w)));
      if (fits) *reinterpret_cast<float4*>(strip + key) = s;
    });
    max = reduce_cta(max, scratch, larger);
    const float shift = exponent_shift(max, scale_log2);
    const auto exponential = [&](float s) { return exp2_approx(score_exponent(s, scale_log2, shift)); };
    const auto row_probs = [&](int key) -> float4 {
      const float4 s =
          fits ? *reinterpret_cast<float4*>(strip + key) : masked(key, load_quad(scores, 0, key));
      return {exponential(s.x), exponential(s.y), exponential(s.z), exponential(s.w)};
    };
    float sum = 0.0f;
    for (int key = 4 * static_cast<int>(threadIdx.x); key < scores.cols; key += 4 * Standard::kRowThreads) {
      const float4 p = row_probs(key);
      sum += p.x + p.y + p.z + p.w;
    }
    sum = reduce_cta(sum, scratch, plus);
    const float inverse = inverse_sum(sum);
    for (int key = 4 * static_cast<int>(threadIdx.x); key < scores.cols; key += 4 * Standard::kRowThreads) {
      const float4 p = row_probs(key);
      store_quad(probs, 0, key, {p.x * inverse, p.y * inverse, p.z * inverse, p.w * inverse});
    }
    if (threadIdx.x == 0) {
      *args[TensorName::lse].row<float>(batch, head, query) = row_lse(max, scale, sum);
    }
  }
}

template <typename Element>
__global__ void __launch_bounds__(Standard::kRowThreads)
    gradient_rows(const __grid_constant__ KernelArguments args, int block_m, bool fits) {
  const CtaWork work = query_work(args);
  const int batch = work.batch, head = work.first_head;
  const Standard::RowLayout layout{Standard::padded_row(args.band.seqlen_k)};
  float* const scratch = shared_memory() + layout.warp_values();
  float *const probs_strip = shared_memory() + layout.strip(0), *const dprobs_strip =
                                                                    shared_memory() + layout.strip(1);
  const int end = min_of(args.band.seqlen_q, work.end_block * block_m);
  for (int query = work.first_block * block_m; query < end; ++query) {
    const auto probs = matrix_rows<const Element>(args, TensorName::probs, batch, head, query);
    const auto dprobs = matrix_rows<const Element>(args, TensorName::dprobs, batch, head, query);
    const auto dropped = [&](int key, float4 dp) -> float4 {
      if (!args.dropout.active()) return dp;
      const Philox4 bits = args.dropout.bits(work.batch_head, query, key / 4);
      const auto each = [&](std::uint32_t random, float x) {
        return random >= args.dropout.threshold ? x * args.dropout.keep_scale : 0.0f;
      };
      return {each(bits.x[0], dp.x), each(bits.x[1], dp.y), each(bits.x[2], dp.z), each(bits.x[3], dp.w)};
    };
    float delta = 0.0f;
    for_each_row_quad(probs, [&](int key, float4 p) {
      const float4 dp = dropped(key, load_quad(dprobs, 0, key));
      delta += p.x * dp.x + p.y * dp.y + p.z * dp.z + p.w * dp.w;
      if (!fits) return;
      *reinterpret_cast<float4*>(probs_strip + key) = p;
      *reinterpret_cast<float4*>(dprobs_strip + key) = dp;
    });
    delta = reduce_cta(delta, scratch, [](float a, float b) { return a + b; });
    const auto dscores = matrix_rows<Element>(args, TensorName::dscores, batch, head, query);
    for (int key = 4 * static_cast<int>(threadIdx.x); key < probs.cols; key += 4 * Standard::kRowThreads) {
      const float4 p = fits ? *reinterpret_cast<float4*>(probs_strip + key) : load_quad(probs, 0, key);
      const float4 dp =
          fits ? *reinterpret_cast<float4*>(dprobs_strip + key) : dropped(key, load_quad(dprobs, 0, key));
      store_quad(dscores, 0, key,
                 {p.x * (dp.x - delta), p.y * (dp.y - delta), p.z * (dp.z - delta), p.w * (dp.w - delta)});
    }
  }
}

}  // namespace tilescope::cuda_cores
