// SPDX-License-Identifier: Apache-2.0
// The last steps of a reduction as people wrote them when the lanes of a warp went in step.
extern "C" __global__ void warp_without_syncwarp(const int* x, int* out) {
  __shared__ volatile int sums[64];
  const int me = threadIdx.x;
  sums[me] = x[me];
  sums[me + 32] = 0;
  for (int step = 16; step > 0; step /= 2) {
    sums[me] = sums[me] + sums[me + step];  // FAULT
  }
  if (me == 0) *out = sums[0];
}
