// SPDX-License-Identifier: Apache-2.0
// What each instance of flash3's forward pass is compiled from: the kernel and its launch.
#pragma once

#include <stdexcept>
#include <string>

#include "gpu/kernels/flash3/forward/forward.cuh"
#include "gpu/kernels/flash3/forward/launch.cuh"

namespace tilescope::gpu {

/// A persistent kernel, on `sms` multiprocessors.
template <typename Arguments>
void launch_flash3_kernel(void (*kernel)(Arguments), const Arguments& arguments, int threads,
                          int shared_bytes, int sms, cudaStream_t stream) {
  const auto check = [](cudaError_t status) {
    if (status != cudaSuccess) throw std::runtime_error(std::string("flash3: ") + cudaGetErrorString(status));
  };
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  const auto ctas = static_cast<unsigned>(std::min<std::int64_t>(arguments.grid.size(), sms));
  kernel<<<ctas, threads, shared_bytes, stream>>>(arguments);
  check(cudaGetLastError());
}

template <sm90::ProductType kType, typename Choice, bool kObserved>
void launch_flash3_forward(const Flash3ForwardArguments& arguments, int sms, cudaStream_t stream) {
  launch_flash3_kernel(flash3_forward<kType, Choice, kObserved>, arguments, Choice::shape.threads(),
                       Flash3ForwardLayout(Choice::shape).end, sms, stream);
}

}  // namespace tilescope::gpu
