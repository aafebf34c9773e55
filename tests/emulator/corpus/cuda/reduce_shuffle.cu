// SPDX-License-Identifier: Apache-2.0
// Sums of rows: shuffles in warps, then shared memory.
extern "C" __global__ void reduce_shuffle(const float* x, float* out, int columns) {
  __shared__ float of_warp[32];
  float sum = 0;
  for (int at = threadIdx.x; at < columns; at += blockDim.x) sum += x[blockIdx.x * columns + at];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}
