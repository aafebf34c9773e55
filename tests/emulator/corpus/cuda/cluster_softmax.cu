// SPDX-License-Identifier: Apache-2.0
// Softmax of rows that two CTAs share: maxima and sums go through each other's shared memory.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

/// Of a CTA, which is one warp.
template <class Combine>
__device__ float of_warp(float value, Combine combine) {
  for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_softmax(const float* x, float* out) {
  __shared__ float greatest, sum;
  const auto cluster = cg::this_cluster();
  const unsigned other = cluster.block_rank() ^ 1;
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const float mine = of_warp(x[at], [](float a, float b) { return fmaxf(a, b); });
  if (threadIdx.x == 0) greatest = mine;
  cluster.sync();
  const float power = expf(x[at] - fmaxf(mine, *cluster.map_shared_rank(&greatest, other)));
  const float part = of_warp(power, [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) sum = part;
  cluster.sync();
  out[at] = power / (part + *cluster.map_shared_rank(&sum, other));
  cluster.sync();  // neither ends while the other reads
}
