// SPDX-License-Identifier: Apache-2.0
// Somebody's CUDA program on the fake driver: two launches, a word of its own, and an exit code of its own.
#include <cuda.h>

#include <cstdio>

int main() {
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 1;
  for (int i = 0; i < 2; ++i) {
    if (cuLaunchKernel(nullptr, 7, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 1;
  }
  std::puts("the command's own output");
  return 5;
}
