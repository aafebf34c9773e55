// SPDX-License-Identifier: Apache-2.0
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <algorithm>

#include "cpu_ref/numeric/philox.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/random_fill.hpp"

namespace tilescope {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1 << 16;

template <typename Element>
__global__ void normal_numbers(Element* data, std::int64_t count, std::uint64_t seed, std::uint32_t tensor) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    // The counter of random_normal: index, tensor, stream of normal numbers.
    const Philox4 bits =
        philox4x32(seed, {{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), tensor, 1u}});
    const float u = (static_cast<float>(bits.x[0]) + 0.5f) * 0x1p-32f;
    const float v = (static_cast<float>(bits.x[1]) + 0.5f) * 0x1p-32f;
    data[i] = static_cast<Element>(sqrtf(-2.0f * logf(u)) * cospif(2.0f * v));
  }
}

template <typename Element>
void launch(void* data, std::int64_t count, std::uint64_t seed, TensorName tensor, cudaStream_t stream) {
  const std::int64_t blocks = std::min(kMostBlocks, (count + kThreads - 1) / kThreads);
  normal_numbers<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<Element*>(data), count, seed, static_cast<std::uint32_t>(tensor));
  check_cuda(cudaGetLastError(), "filling " + std::string(to_string(tensor)));
}

}  // namespace

void fill_normal(void* data, std::int64_t count, ElementType type, std::uint64_t seed, TensorName tensor,
                 cudaStream_t stream) {
  switch (type) {
    case ElementType::fp32:
      return launch<float>(data, count, seed, tensor, stream);
    case ElementType::fp16:
      return launch<__half>(data, count, seed, tensor, stream);
    case ElementType::bf16:
      return launch<__nv_bfloat16>(data, count, seed, tensor, stream);
    case ElementType::fp8e4m3:
      return launch<__nv_fp8_e4m3>(data, count, seed, tensor, stream);
    case ElementType::fp8e5m2:
      return launch<__nv_fp8_e5m2>(data, count, seed, tensor, stream);
  }
}

}  // namespace tilescope
