// SPDX-License-Identifier: Apache-2.0
// Values up to and with 64 are counted in 64 bins.
extern "C" __global__ void bins_beyond_the_array(const int* x, int* counts) {
  __shared__ int bins[64];
  const int me = threadIdx.x;
  if (me < 64) bins[me] = 0;
  __syncthreads();
  atomicAdd(&bins[x[me]], 1);  // FAULT
  __syncthreads();
  if (me < 64) atomicAdd(&counts[me], bins[me]);
}
