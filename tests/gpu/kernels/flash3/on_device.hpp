// SPDX-License-Identifier: Apache-2.0
// Numbers in device memory, for the tests of single kernels.
#pragma once

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <vector>

namespace tilescope::testing {

template <typename T>
struct OnDevice {
  T* data = nullptr;
  std::size_t size;

  explicit OnDevice(const std::vector<T>& host) : size(host.size()) {
    REQUIRE(cudaMalloc(&data, size * sizeof(T)) == cudaSuccess);
    cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~OnDevice() { cudaFree(data); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  std::vector<T> host() const {
    std::vector<T> copy(size);
    REQUIRE(cudaMemcpy(copy.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess);
    return copy;
  }
};

}  // namespace tilescope::testing
