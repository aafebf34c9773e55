// SPDX-License-Identifier: Apache-2.0
// Inclusive sums of a block's elements, in steps of doubling length.
extern __shared__ int values[];

extern "C" __global__ void scan_block(const int* x, int* out, int n) {
  const int at = blockIdx.x * blockDim.x + threadIdx.x, me = threadIdx.x;
  values[me] = at < n ? x[at] : 0;
  for (int step = 1; step < blockDim.x; step *= 2) {
    __syncthreads();
    const int before = me >= step ? values[me - step] : 0;
    __syncthreads();
    values[me] += before;
  }
  if (at < n) out[at] = values[me];
}
