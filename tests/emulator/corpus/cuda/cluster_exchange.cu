// SPDX-License-Identifier: Apache-2.0
// Two CTAs of a cluster send each other their numbers by asynchronous stores, and the sum of these by
// asynchronous reductions, counted by the mbarrier of who receives.
#include <cooperative_groups.h>
#include <cuda/ptx>

namespace cg = cooperative_groups;
namespace ptx = cuda::ptx;

constexpr int kThreads = 128;

extern "C" __global__ void __cluster_dims__(2, 1, 1) cluster_exchange(const int* x, int* swapped, int* sums) {
  __shared__ alignas(16) int received[kThreads];
  __shared__ int sum;
  __shared__ uint64_t barrier;
  const auto cluster = cg::this_cluster();
  const int me = blockIdx.x * kThreads + threadIdx.x;
  if (threadIdx.x == 0) {
    sum = 0;
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
  }
  cluster.sync();
  if (threadIdx.x == 0)
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier,
                                   2 * kThreads * sizeof(int));
  const unsigned other = cluster.block_rank() ^ 1;
  uint64_t* const there = cluster.map_shared_rank(&barrier, other);
  ptx::st_async(cluster.map_shared_rank(received, other) + threadIdx.x, x[me], there);
  ptx::red_async(ptx::op_add, cluster.map_shared_rank(&sum, other), x[me], there);
  while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {
  }
  swapped[me] = received[threadIdx.x];
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
