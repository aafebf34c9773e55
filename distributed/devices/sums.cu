// SPDX-License-Identifier: Apache-2.0
#include "distributed/devices/sums.hpp"

#include <cmath>

#include "gpu/launch/device.hpp"
#include "gpu/primitives/common/element.cuh"

namespace tilescope {
namespace {

constexpr int kThreads = 256;

/// Neighbouring elements of a row that a thread moves as one.
template <typename Element, int kWidth>
struct alignas(kWidth * sizeof(Element) > 16 ? 16 : kWidth * sizeof(Element)) Pack {
  Element x[kWidth];
};

template <int kWidth, typename Element>
__device__ void load(float (&values)[kWidth], const Element* from) {
  const auto pack = *reinterpret_cast<const Pack<Element, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] = widen(pack.x[i]);
}
template <int kWidth, typename Element>
__device__ void store(Element* to, const float (&values)[kWidth]) {
  Pack<Element, kWidth> pack;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) pack.x[i] = narrow<Element>(values[i]);
  *reinterpret_cast<Pack<Element, kWidth>*>(to) = pack;
}

/// Where a thread works: whole rows to a CTA, neighbouring threads at neighbouring columns.
struct Place {
  std::int64_t row;
  int col, batch, head;
  bool inside;
};
template <int kWidth>
__device__ Place place_of(const PassRows& extent) {
  const int packs = static_cast<int>(extent.cols) / kWidth, rows = kThreads / packs;
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * rows + thread / packs;
  return {row, thread % packs * kWidth, static_cast<int>(blockIdx.z), static_cast<int>(blockIdx.y),
          thread / packs < rows && row < extent.rows};
}

template <typename Element, typename Target, int kWidth>
__global__ void merge_pass(const __grid_constant__ MergeArguments args) {
  constexpr float kNothing = -INFINITY;
  const Place at = place_of<kWidth>(args.extent);
  float part_lse[kMostParts], base = kNothing, largest = kNothing;
  bool touched = false;
  if (at.inside) {
    base = largest = *args.lse.row<const float>(at.batch, at.head, at.row);
#pragma unroll
    for (int i = 0; i < kMostParts; ++i) {
      part_lse[i] = kNothing;
      if (i >= args.count) continue;
      const OutputPart& part = args.parts[i];
      const std::int64_t row = at.row - part.first;
      if (row < 0 || row >= part.rows) continue;
      part_lse[i] = *part.lse.row<const float>(at.batch, at.head, row);
      largest = fmaxf(largest, part_lse[i]);
      touched |= part_lse[i] != kNothing;
    }
  }
  __syncthreads();  // all threads of a row have read its lse before one writes it
  if (!touched) return;
  Target* const out = args.out.row<Target>(at.batch, at.head, at.row) + at.col;
  float sums[kWidth] = {}, values[kWidth], weights = 0.0f;
  const auto take = [&](float weight) {
    weights += weight;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i] = fmaf(weight, values[i], sums[i]);
  };
  if (base != kNothing) {
    load<kWidth>(values, out);
    take(expf(base - largest));
  }
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    if (part_lse[i] == kNothing) continue;
    const OutputPart& part = args.parts[i];
    load<kWidth>(values, part.out.row<const Element>(at.batch, at.head, at.row - part.first) + at.col);
    take(expf(part_lse[i] - largest));
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[i] /= weights;
  store<kWidth>(out, sums);
  if (at.col == 0) *args.lse.row<float>(at.batch, at.head, at.row) = largest + logf(weights);
}

template <typename Element, int kWidth>
__global__ void add_part_pass(PassRows extent, DeviceTensor sums, DeviceTensor part, bool replaces) {
  const Place at = place_of<kWidth>(extent);
  if (!at.inside) return;
  float* const target = sums.row<float>(at.batch, at.head, at.row) + at.col;
  float values[kWidth], before[kWidth];
  load<kWidth>(values, part.row<const Element>(at.batch, at.head, at.row) + at.col);
  if (!replaces) {
    load<kWidth>(before, target);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) values[i] += before[i];
  }
  store<kWidth>(target, values);
}

template <int kWidth>
__global__ void add_sums_pass(PassRows extent, DeviceTensor to, DeviceTensor from, bool clears_source) {
  const Place at = place_of<kWidth>(extent);
  if (!at.inside) return;
  float* const target = to.row<float>(at.batch, at.head, at.row) + at.col;
  float* const source = from.row<float>(at.batch, at.head, at.row) + at.col;
  float values[kWidth], more[kWidth];
  load<kWidth>(values, target);
  load<kWidth>(more, source);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] += more[i];
  store<kWidth>(target, values);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) more[i] = 0.0f;
  if (clears_source) store<kWidth>(source, more);
}

template <typename Element, int kWidth>
__global__ void round_pass(PassRows extent, DeviceTensor result, DeviceTensor sums, float factor) {
  const Place at = place_of<kWidth>(extent);
  if (!at.inside) return;
  float values[kWidth];
  load<kWidth>(values, sums.row<const float>(at.batch, at.head, at.row) + at.col);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) values[i] *= factor;
  store<kWidth>(result.row<Element>(at.batch, at.head, at.row) + at.col, values);
}

__global__ void fill_pass(float* data, std::int64_t count, float value) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) data[i] = value;
}

constexpr int kWide = 8;

/// Calls pass(grid) with elements a thread as its template argument: rows of whole 16-byte packs go by them,
/// others by the element.
template <typename Pass>
void launch(const PassRows& extent, Pass&& pass) {
  if (extent.rows == 0) return;
  const bool packs = extent.cols % kWide == 0;
  const std::int64_t rows = kThreads / (packs ? extent.cols / kWide : extent.cols);
  const dim3 grid(static_cast<unsigned>((extent.rows + rows - 1) / rows), static_cast<unsigned>(extent.heads),
                  static_cast<unsigned>(extent.batch));
  packs ? pass.template operator()<kWide>(grid) : pass.template operator()<1>(grid);
  check_cuda(cudaGetLastError(), "launching a pass over sums");
}

}  // namespace

void launch_merge(const MergeArguments& arguments, ElementType dtype, bool fp32_target, CUstream_st* stream) {
  dispatch_element(dtype, [&]<typename Element>() {
    const auto run = [&]<typename Target>() {
      launch(arguments.extent, [&]<int kWidth>(dim3 grid) {
        merge_pass<Element, Target, kWidth><<<grid, kThreads, 0, stream>>>(arguments);
      });
    };
    fp32_target ? run.template operator()<float>() : run.template operator()<Element>();
  });
}

void launch_add_part(const PassRows& extent, const DeviceTensor& sums, const DeviceTensor& part,
                     ElementType dtype, bool store, CUstream_st* stream) {
  dispatch_element(dtype, [&]<typename Element>() {
    launch(extent, [&]<int kWidth>(dim3 grid) {
      add_part_pass<Element, kWidth><<<grid, kThreads, 0, stream>>>(extent, sums, part, store);
    });
  });
}

void launch_add_sums(const PassRows& extent, const DeviceTensor& to, const DeviceTensor& from,
                     bool clears_source, CUstream_st* stream) {
  launch(extent, [&]<int kWidth>(dim3 grid) {
    add_sums_pass<kWidth><<<grid, kThreads, 0, stream>>>(extent, to, from, clears_source);
  });
}

void launch_round(const PassRows& extent, const DeviceTensor& result, const DeviceTensor& sums,
                  ElementType dtype, float factor, CUstream_st* stream) {
  dispatch_element(dtype, [&]<typename Element>() {
    launch(extent, [&]<int kWidth>(dim3 grid) {
      round_pass<Element, kWidth><<<grid, kThreads, 0, stream>>>(extent, result, sums, factor);
    });
  });
}

void launch_fill(float* data, std::int64_t count, float value, CUstream_st* stream) {
  if (count == 0) return;
  fill_pass<<<static_cast<unsigned>((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(data, count,
                                                                                               value);
  check_cuda(cudaGetLastError(), "filling statistics");
}

}  // namespace tilescope
