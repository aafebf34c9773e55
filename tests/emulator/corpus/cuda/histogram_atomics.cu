// SPDX-License-Identifier: Apache-2.0
// Atomics in shared memory, then in global memory.
extern "C" __global__ void histogram_atomics(const unsigned char* x, unsigned* counts, int n) {
  __shared__ unsigned mine[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
  __syncthreads();
  for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < n; at += gridDim.x * blockDim.x)
    atomicAdd(&mine[x[at]], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) atomicAdd(&counts[bin], mine[bin]);
}
