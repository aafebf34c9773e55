// SPDX-License-Identifier: Apache-2.0
// C = A B^T in bf16 at the rate of Hopper's tensor cores, of the kernels' primitives alone: one warp loads
// tiles by TMA, two warpgroups multiply 64 x 256 each by wgmma, persistent CTAs take tile after tile, grouped
// so that those that run at once share rows of A and B in L2. On an H200 at 8192 cubed, random data, in four
// runs: 745, 802, 775 and 781 TFLOP/s beside cuBLAS's 707, 748, 786 and 791. Two CTAs of a cluster can
// compute tiles above each other and load half of their common B each, for both. That is slower (614 of 745,
// 625 of 802, 629 of 781), so the shape that stands here is alone.
#pragma once

#include <cuda.h>

#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/register_budget.cuh"
#include "gpu/primitives/sm90/stage_accumulator.cuh"
#include "gpu/primitives/sm90/tma.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope {
namespace gpu::sm90 {

__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ void sync_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// Arrives at the barrier at the same place in CTA `rank` of the cluster.
__device__ __forceinline__ void arrive_in_cluster(SharedAddress barrier, std::uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

/// Loads the box at column x of row y into shared memory; `barrier` is told of its bytes.
__device__ __forceinline__ void load_box(std::uint32_t target, const CUtensorMap& map, std::uint32_t barrier,
                                         int x, int y, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(target),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}
/// The same, at the same place in every CTA of the cluster that `ctas` has a bit for.
__device__ __forceinline__ void load_box_to_all(std::uint32_t target, const CUtensorMap& map,
                                                std::uint32_t barrier, int x, int y, std::uint16_t ctas,
                                                CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;" ::"r"(target),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"(ctas), "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}
__device__ __forceinline__ void store_box(const CUtensorMap& map, std::uint32_t source, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(&map),
               "r"(source), "r"(x), "r"(y)
               : "memory");
}

}  // namespace gpu::sm90

struct Sm90ProductShape {
  int block_m = 128, block_n = 256, block_k = 64;  // of a CTA's step
  int stages = 4;
  int cluster = 1;   // CTAs that share B
  int group_m = 16;  // tiles of M that are taken together before the next of N
  constexpr gpu::sm90::PanelTile a_tile() const { return {block_m, block_k}; }
  constexpr gpu::sm90::PanelTile b_tile() const { return {block_n, block_k}; }
  /// What a warp stores at once: 16 rows x two panels.
  constexpr gpu::sm90::PanelTile c_tile() const { return {16, 128}; }
  constexpr int consumers() const { return block_m / 64; }
  constexpr int threads() const { return 128 * (1 + consumers()); }
  constexpr int stage_bytes() const { return a_tile().bytes() + b_tile().bytes(); }
  constexpr int c_offset() const { return stages * stage_bytes(); }
  constexpr int barrier_offset() const { return c_offset() + 4 * consumers() * c_tile().bytes(); }
  constexpr int shared_bytes() const { return barrier_offset() + 2 * 8 * stages; }
  constexpr bool operator==(const Sm90ProductShape&) const = default;
};

/// A is m x k, B n x k, C m x n, all row-major; multiples of the tile (and of the cluster's tiles in m).
struct Sm90ProductArguments {
  CUtensorMap a, b, c;  // boxes of 64 columns and block_m, block_n / cluster, 16 rows
  int m = 0, n = 0, k = 0;
};

template <typename Choice>
__global__ __launch_bounds__(Choice::shape.threads(),
                             1) void sm90_matrix_product(const __grid_constant__ Sm90ProductArguments args) {
  constexpr Sm90ProductShape kShape = Choice::shape;
  namespace sm90 = gpu::sm90;
  using sm90::CacheHint;
  static_assert(kShape.shared_bytes() <= 227 * 1024);
  constexpr sm90::PanelTile kA = kShape.a_tile(), kB = kShape.b_tile(), kC = kShape.c_tile();
  constexpr bool kPair = kShape.cluster > 1;
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const std::uint32_t base = sm90::shared_address_of(shared_bytes);
  const auto a_tile = [&](int stage) { return base + stage * kShape.stage_bytes(); };
  const auto b_tile = [&](int stage) { return a_tile(stage) + kA.bytes(); };
  const auto full = [&](int stage) { return base + kShape.barrier_offset() + 8 * stage; };
  const auto empty = [&](int stage) { return full(stage) + 8 * kShape.stages; };

  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0);
  const int rank = kPair ? static_cast<int>(sm90::rank_in_cluster()) : 0;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kShape.stages; ++stage) {
      sm90::init_barrier(full(stage), 1);
      sm90::init_barrier(empty(stage), 4 * kShape.consumers() * kShape.cluster);
    }
    sm90::fence_barrier_init();
  }
  if constexpr (kPair) {
    sm90::sync_cluster();
  } else {
    __syncthreads();
  }

  // Tiles in the order in which clusters take them: down group_m of M, then one of N.
  const int tiles_m = args.m / (kShape.block_m * kShape.cluster), tiles_n = args.n / kShape.block_n;
  struct Place {
    int m, n;
  };
  const auto place = [&](int index) {
    const int group = index / (kShape.group_m * tiles_n);
    const int first = group * kShape.group_m;
    const int rows = min(kShape.group_m, tiles_m - first);
    const int inside = index - first * tiles_n;
    return Place{((first + inside % rows) * kShape.cluster + rank) * kShape.block_m,
                 inside / rows * kShape.block_n};
  };
  const int first_tile = static_cast<int>(blockIdx.x) / kShape.cluster;
  const int tile_step = static_cast<int>(gridDim.x) / kShape.cluster;
  const int steps = args.k / kShape.block_k;

  if (warpgroup == 0) {
    sm90::give_up_registers<kShape.consumers() == 2 ? 40 : 32>();
    if (threadIdx.x == 0) {
      sm90::RingPlace<kShape.stages> ring;
      for (int tile = first_tile; tile < tiles_m * tiles_n; tile += tile_step) {
        const Place at = place(tile);
        for (int step = 0; step < steps; ++step) {
          sm90::wait(empty(ring.stage), ring.empty_parity(), "a free stage");
          sm90::arrive_expecting(full(ring.stage), kShape.stage_bytes());
          sm90::load_box(a_tile(ring.stage), args.a, full(ring.stage), step * kShape.block_k, at.m,
                         CacheHint::normal);
          if constexpr (kPair) {
            constexpr int kRows = kShape.block_n / kShape.cluster;
            sm90::load_box_to_all(b_tile(ring.stage) + rank * kRows * 128, args.b, full(ring.stage),
                                  step * kShape.block_k, at.n + rank * kRows, (1 << kShape.cluster) - 1,
                                  CacheHint::normal);
          } else {
            sm90::load_box(b_tile(ring.stage), args.b, full(ring.stage), step * kShape.block_k, at.n,
                           CacheHint::normal);
          }
          ring.advance();
        }
      }
    }
  } else {
    sm90::take_registers<kShape.consumers() == 2 ? 232 : 160>();
    const int group = warpgroup - 1, thread = static_cast<int>(threadIdx.x) % 128, lane = thread % 32;
    const int warp = 4 * group + thread / 32;
    const std::uint32_t c_rows = base + kShape.c_offset() + warp * kC.bytes();
    const auto release = [&](int stage) {
      if constexpr (kPair) {
        if (lane < kShape.cluster) sm90::arrive_in_cluster(empty(stage), static_cast<std::uint32_t>(lane));
      } else {
        if (lane == 0) sm90::arrive(empty(stage));
      }
    };
    sm90::RingPlace<kShape.stages> ring;
    float sums[kShape.block_n / 2];
    for (int tile = first_tile; tile < tiles_m * tiles_n; tile += tile_step) {
      const Place at = place(tile);
      int before = 0;
      for (int step = 0; step < steps; ++step) {
        sm90::wait(full(ring.stage), ring.full_parity(), "a stage");
        const sm90::Operand left(kA, sm90::Major::k, a_tile(ring.stage) + group * 64 * 128);
        const sm90::Operand right(kB, sm90::Major::k, b_tile(ring.stage));
        sm90::fence_wgmma();
#pragma unroll
        for (int i = 0; i < kShape.block_k / 16; ++i) {
          sm90::multiply<kShape.block_n, sm90::WgmmaType::bf16>(sums, left.at(k_step(kA, sm90::Major::k, i)),
                                                                right.at(k_step(kB, sm90::Major::k, i)),
                                                                step > 0 || i > 0);
        }
        sm90::commit_wgmma();
        // The products of the step before are done: its stage is free.
        sm90::wait_for_wgmma<1>();
        if (step > 0) release(before);
        before = ring.stage;
        ring.advance();
      }
      sm90::wait_for_wgmma<0>();
      release(before);

      const auto store_half = [&]<int kHalf>() {
        if (lane == 0) sm90::wait_for_store_reads<0>();
        __syncwarp();
        sm90::stage_rows<sm90::WgmmaType::bf16, kC, 128, 64 * kHalf>(sums, c_rows, lane);
        sm90::fence_async_proxy();
        __syncwarp();
        if (lane == 0) {
          for (int panel = 0; panel < kC.panels(); ++panel) {
            sm90::store_box(args.c, c_rows + panel * kC.panel_bytes(), at.n + 128 * kHalf + 64 * panel,
                            at.m + 16 * warp);
          }
          sm90::commit_stores();
        }
      };
      store_half.template operator()<0>();
      if constexpr (kShape.block_n == 256) store_half.template operator()<1>();
    }
    if (lane == 0) sm90::wait_for_store_reads<0>();
  }
  // A CTA's barriers and tiles are the other's to write until both are done.
  __syncwarp();
  if constexpr (kPair) sm90::sync_cluster();
}

}  // namespace tilescope
