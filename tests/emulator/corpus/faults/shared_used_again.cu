// SPDX-License-Identifier: Apache-2.0
// Sums of two rows, one after the other, in one place; nothing keeps the second from coming too early.
extern "C" __global__ void shared_used_again(const float* x, float* out) {
  __shared__ float row[128];
  const int me = threadIdx.x;
  for (int i = 0; i < 2; ++i) {
    row[me] = x[i * 128 + me];  // FAULT
    __syncthreads();
    float sum = 0;
    for (int at = 0; at < 128; ++at) sum += row[(me + at) % 128];
    out[i * 128 + me] = sum;
  }
}
