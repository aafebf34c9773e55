// SPDX-License-Identifier: Apache-2.0
// A histogram whose bins lie in the shared memory of four CTAs, which add to each other's.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

constexpr int kBins = 32;  // of a CTA

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(const int* x, int* counts) {
  __shared__ int bins[kBins];
  const auto cluster = cg::this_cluster();
  if (threadIdx.x < kBins) bins[threadIdx.x] = 0;
  cluster.sync();
  const int bin = x[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(cluster.map_shared_rank(bins, bin / kBins) + bin % kBins, 1);
  cluster.sync();
  if (threadIdx.x < kBins) atomicAdd(counts + cluster.block_rank() * kBins + threadIdx.x, bins[threadIdx.x]);
}
