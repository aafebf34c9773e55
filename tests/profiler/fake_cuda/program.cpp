// SPDX-License-Identifier: Apache-2.0
// Somebody's CUDA program on the fake driver: two launches, a word of its own, and an exit code of its own,
// or, with an argument, an abort.
#include <cuda.h>

#include <cstdio>
#include <cstdlib>

int main(int count, char**) {
  CUcontext context = nullptr;
  if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 1;
  for (int i = 0; i < 2; ++i) {
    if (cuLaunchKernel(nullptr, 7, 1, 1, 32, 1, 1, 0, nullptr, nullptr, nullptr) != CUDA_SUCCESS) return 1;
  }
  if (count > 1) std::abort();
  std::puts("the command's own output");
  return 5;
}
