// SPDX-License-Identifier: Apache-2.0
// Two sums of a block through one array: a fast warp writes its second while others still read the first.
// As reported of a LayerNorm: https://github.com/flashinfer-ai/flashinfer/pull/3607
__device__ float sum_of_block(float value, float* of_warp) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
#ifdef MENDED
  __syncthreads();
#endif
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;  // FAULT
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < blockDim.x / 32; ++warp) sum += of_warp[warp];
  return sum;
}

extern "C" __global__ void mean_then_variance(const float* x, float* out) {
  __shared__ float of_warp[32];
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const float mean = sum_of_block(x[at], of_warp) / blockDim.x, off = x[at] - mean;
  out[at] = off * rsqrtf(sum_of_block(off * off, of_warp) / blockDim.x + 1e-5f);
}
