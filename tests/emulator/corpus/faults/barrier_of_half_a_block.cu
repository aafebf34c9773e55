// SPDX-License-Identifier: Apache-2.0
// Those without work left never come to the barrier, for which the others wait.
extern "C" __global__ void barrier_of_half_a_block(const int* x, int* out, int n) {
  __shared__ int mine[128];
  const int me = threadIdx.x;
  if (me < n) {
    mine[me] = x[me];
    asm volatile("barrier.sync 1, 128;" ::: "memory");  // FAULT
    out[me] = mine[n - 1 - me];
  }
}
