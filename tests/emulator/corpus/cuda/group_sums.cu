// SPDX-License-Identifier: Apache-2.0
// Sums of tiles of four threads, prefix sums of tiles of 16, and how many of a warp share a key, by
// cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

extern "C" __global__ void group_sums(const int* x, int* sums, int* scans, int* same) {
  const int me = blockIdx.x * blockDim.x + threadIdx.x;
  const auto block = cg::this_thread_block();
  sums[me] = cg::reduce(cg::tiled_partition<4>(block), x[me], cg::plus<int>());
  scans[me] = cg::exclusive_scan(cg::tiled_partition<16>(block), x[me], cg::plus<int>());
  const auto sharing = cg::labeled_partition(cg::coalesced_threads(), x[me]);
  same[me] = cg::reduce(sharing, 1, cg::plus<int>());
}
