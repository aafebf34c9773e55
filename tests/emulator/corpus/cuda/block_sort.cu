// SPDX-License-Identifier: Apache-2.0
// A block's numbers, sorted by their digits, and their sum, by CUB.
#include <cub/block/block_load.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>

extern "C" __global__ void block_sort(const int* x, int* sorted, int* sums) {
  using Load = cub::BlockLoad<int, 128, 4, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
  using Sort = cub::BlockRadixSort<int, 128, 4>;
  using Sum = cub::BlockReduce<int, 128>;
  __shared__ union {
    Load::TempStorage load;
    Sort::TempStorage sort;
    Sum::TempStorage sum;
  } storage;
  int mine[4];
  Load(storage.load).Load(x + blockIdx.x * 512, mine);
  __syncthreads();
  Sort(storage.sort).Sort(mine);
  __syncthreads();
  const int sum = Sum(storage.sum).Sum(mine);
  for (int i = 0; i < 4; ++i) sorted[blockIdx.x * 512 + threadIdx.x * 4 + i] = mine[i];
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
