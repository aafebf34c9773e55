// SPDX-License-Identifier: Apache-2.0
// The sum of a row that a cluster shares: each CTA reads what the others may not have written yet.
#include <cooperative_groups.h>

extern "C" __global__ void __cluster_dims__(2, 1, 1) partial_sums_of_a_cluster(const float* x, float* out) {
  __shared__ float partial;
  const auto cluster = cooperative_groups::this_cluster();
  float value = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x == 0) partial = value;
  __syncthreads();
  float sum = 0;
  for (unsigned rank = 0; rank < cluster.num_blocks(); ++rank) {
    sum += *cluster.map_shared_rank(&partial, rank);  // FAULT
  }
  cluster.sync();
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
