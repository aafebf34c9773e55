// SPDX-License-Identifier: Apache-2.0
// Copies of boxes by the copy engine. One thread issues them. Source: PTX ISA, "cp.async.bulk.tensor".
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::gpu::sm90 {

/// What the L2 should do with the lines of a copy; the values are those that the toolkit's createpolicy
/// gives.
enum class CacheHint : std::uint64_t {
  normal = 0x1000000000000000,
  evict_first = 0x12F0000000000000,
  evict_last = 0x14F0000000000000,
};

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Loads a box of a (B, H, N, D) tensor into shared memory; `barrier` is told of its bytes.
__device__ __forceinline__ void load_box(std::uint32_t target, const CUtensorMap& map, std::uint32_t barrier,
                                         int col, int row, int head, int batch, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(target),
      "l"(&map), "r"(barrier), "r"(col), "r"(row), "r"(head), "r"(batch),
      "l"(static_cast<std::uint64_t>(hint))
      : "memory");
}

/// Loads consecutive bytes, a multiple of 16 at one of 16; `barrier` has been told of them.
__device__ __forceinline__ void load_run(SharedAddress target, const void* from, std::uint32_t bytes,
                                         SharedAddress barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(target),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

/// Loads the tile that begins at `row` of a head, a box a panel. `barrier` has been told of its bytes.
template <PanelTile kTile>
__device__ __forceinline__ void load_tile(SharedAddress target, const CUtensorMap& map, SharedAddress barrier,
                                          int row, int head, int batch, CacheHint hint) {
  for (int panel = 0; panel < kTile.panels(); ++panel) {
    load_box(target + static_cast<std::uint32_t>(panel * kTile.panel_bytes()), map, barrier,
             panel * kTile.panel_cols(), row, head, batch, hint);
  }
}

/// Stores a box from shared memory. Its writes must have passed fence_async_proxy() and a barrier.
__device__ __forceinline__ void store_box(const CUtensorMap& map, std::uint32_t source, int col, int row,
                                          int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(source), "r"(col), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
/// Adds a box of fp32 numbers to the tensor.
__device__ __forceinline__ void add_box(const CUtensorMap& map, std::uint32_t source, int col, int row,
                                        int head, int batch) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(source), "r"(col), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

/// Stores and additions since the last call become one group, which the same thread can wait for.
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until all but the newest kGroups have read their shared memory: it may be written again ...
template <int kGroups>
__device__ __forceinline__ void wait_for_store_reads() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kGroups) : "memory");
}
/// ... and until they have written: others may be told of it.
template <int kGroups>
__device__ __forceinline__ void wait_for_stores() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kGroups) : "memory");
}

}  // namespace tilescope::gpu::sm90
