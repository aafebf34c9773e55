// SPDX-License-Identifier: Apache-2.0
// A sum over the grid: tiles of a warp, and a barrier of the whole grid.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void cooperative_sum(const float* x, float* of_block, float* out, int n) {
  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
  __shared__ float of_tile[32];
  float sum = 0;
  for (int at = static_cast<int>(grid.thread_rank()); at < n; at += static_cast<int>(grid.size()))
    sum += x[at];
  sum = cg::reduce(tile, sum, cg::plus<float>());
  if (tile.thread_rank() == 0) of_tile[tile.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) {
    float all = 0;
    for (unsigned i = 0; i < tile.meta_group_size(); ++i) all += of_tile[i];
    of_block[blockIdx.x] = all;
  }
  grid.sync();
  if (grid.thread_rank() == 0) {
    float all = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) all += of_block[i];
    *out = all;
  }
}
