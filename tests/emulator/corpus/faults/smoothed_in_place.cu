// SPDX-License-Identifier: Apache-2.0
// Blocks read what their neighbours write, in one launch: who comes first decides.
extern "C" __global__ void smoothed_in_place(float* x, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at == 0 || at >= n - 1) return;
  const float sum = x[at - 1] + x[at] + x[at + 1];
  __syncthreads();
  x[at] = sum / 3;  // FAULT
}
