// SPDX-License-Identifier: Apache-2.0
#include <cassert>
#include <cstdio>

extern "C" __global__ void prints_and_asserts(const int* x, int* out) {
  assert(x[threadIdx.x] >= 0);
  if (threadIdx.x % 16 == 3)
    printf("thread %d of %s has %5.2f\n", threadIdx.x, "a block", x[threadIdx.x] / 4.0);
  out[threadIdx.x] = x[threadIdx.x] * 2;
}
