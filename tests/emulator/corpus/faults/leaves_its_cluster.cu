// SPDX-License-Identifier: Apache-2.0
// Each CTA reverses what its neighbour of the cluster holds, which may have ended by then.
#include <cooperative_groups.h>

extern "C" __global__ void __cluster_dims__(2, 1, 1) leaves_its_cluster(const float* x, float* out) {
  __shared__ float tile[64];
  const auto cluster = cooperative_groups::this_cluster();
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  cluster.sync();
  const float* const there = cluster.map_shared_rank(tile, cluster.block_rank() ^ 1);
  out[blockIdx.x * blockDim.x + threadIdx.x] = there[blockDim.x - 1 - threadIdx.x];  // FAULT
}
