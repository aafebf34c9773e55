// SPDX-License-Identifier: Apache-2.0
// A bound that lets one thread more do its work.
extern "C" __global__ void one_row_too_many(const float* x, float* out, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at <= n) {
    out[at] = 2 * x[at];  // FAULT
  }
}
