// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's backward pass is compiled from: the kernel and its launch.
#pragma once

#include <stdexcept>
#include <string>

#include "gpu/kernels/flash3/backward/backward.cuh"
#include "gpu/kernels/flash3/backward/launch.cuh"
#include "gpu/kernels/flash3/backward/roles.cuh"

namespace tilescope::gpu {

template <sm90::ProductType kType, typename Choice, bool kObserved>
void launch_flash3_dkdvdq(const Flash3BackwardArguments& arguments, int ctas, cudaStream_t stream) {
  constexpr Flash3BackwardShape kShape = Choice::shape;
  constexpr int kSharedBytes = Flash3BackwardLayout(kShape).end;
  void (*const kernel)(Flash3BackwardArguments) = flash3_dkdvdq<kType, Choice, kObserved>;
  const auto check = [](cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(std::string("flash3: ") + cudaGetErrorString(status));
  };
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  cudaLaunchAttribute early{};  // it waits for the kernel before it by itself
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(kShape.threads());
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, arguments));
}

}  // namespace tilescope::gpu
