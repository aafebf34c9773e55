// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's forward pass is compiled from: the kernel and its launch.
#pragma once

#include <stdexcept>
#include <string>

#include "gpu/kernels/flash3/forward/forward.cuh"
#include "gpu/kernels/flash3/forward/launch.cuh"

namespace tilescope::gpu {

template <sm90::ProductType kType, typename Choice, bool kObserved>
void launch_flash3_forward(const Flash3ForwardArguments& arguments, int sms, cudaStream_t stream) {
  constexpr Flash3ForwardShape kShape = Choice::shape;
  constexpr int kSharedBytes = Flash3ForwardLayout(kShape).end;
  void (*const kernel)(Flash3ForwardArguments) = flash3_forward<kType, Choice, kObserved>;
  const auto check = [](cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(std::string("flash3: ") + cudaGetErrorString(status));
  };
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(arguments.grid.size(), sms));
  kernel<<<ctas, kShape.threads(), kSharedBytes, stream>>>(arguments);
  check(cudaGetLastError());
}

}  // namespace tilescope::gpu
