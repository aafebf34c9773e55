// SPDX-License-Identifier: Apache-2.0
// How latent queries and keys come to shared memory as wgmma reads it. By cp.async, not by the copy engine:
// keys lie in pages of 8 and more, behind a sequence's last one is anything, and V, which is K, must be 0
// there.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/shape.hpp"
#include "gpu/kernels/decode/rows.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm80/paged_tile.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"

namespace tilescope::mla_wgmma {

using namespace gpu::sm90;
using Shape = MlaWgmmaShape;

/// Of the named barriers.
enum NamedBarrier { kAllComputing = 1, kAllLoading };

/// Shared memory of a CTA, by address.
struct Shared {
  unsigned char* bytes;
  SharedAddress base;

  __device__ SharedAddress q() const { return base + Shape::q(); }
  __device__ SharedAddress k(int stage) const {
    return base + Shape::k(0) + stage * Shape::key_tile().bytes();
  }
  __device__ SharedAddress p() const { return base + Shape::p(); }
  __device__ float* factors() const { return reinterpret_cast<float*>(bytes + Shape::factors()); }
  __device__ float* normalisers() const { return reinterpret_cast<float*>(bytes + Shape::normalisers()); }
  __device__ int* pages() const { return reinterpret_cast<int*>(bytes + Shape::pages()); }
  __device__ SharedAddress full(int stage, int part) const {
    return base + Shape::full() + 8 * (Shape::kParts * stage + part);
  }
  __device__ SharedAddress empty(int stage, int part) const {
    return base + Shape::empty() + 8 * (Shape::kParts * stage + part);
  }
  /// What the two that compute tell each other. Each thread says for itself what it has written or read:
  /// racecheck knows no other order.
  __device__ SharedAddress probs_there() const { return base + Shape::told(); }
  __device__ SharedAddress probs_read() const { return base + Shape::told() + 8; }
  __device__ SharedAddress normalisers_there() const { return base + Shape::told() + 16; }
  __device__ SharedAddress scores_there() const { return base + Shape::told() + 24; }
  /// By one thread, first of all.
  __device__ void init_barriers() const {
    for (int stage = 0; stage < Shape::kStages; ++stage) {
      for (int part = 0; part < Shape::kParts; ++part) {
        init_barrier(full(stage, part), 4);  // a warp each
        init_barrier(empty(stage, part), 4);
      }
    }
    for (int i = 0; i < 4; ++i) init_barrier(base + Shape::told() + 8 * i, kWarpgroupThreads);
    fence_barrier_init();
  }
};

/// What a CTA computes: one q tile, from a split of the keys that it sees.
struct CtaTile {
  CtaWork work;
  DecodeRows rows;
  TileRange range;
  int seqlen_k;
  /// Others load the same keys beside it: then it is products that bind, and less where the right columns
  /// wait for the next S, to be multiplied beside its softmax. Else it is loads, which then would begin late.
  bool lags;

  /// @param block_m  rows of a q tile; the CTA's other rows stay empty
  __device__ CtaTile(const KernelArguments& args, const DecodeArguments& decode, int block_m)
      : work(decode_work(args, decode)), rows(args, decode, work, block_m) {
    const VisibleBand band = batch_band<true>(args, work.batch);
    seqlen_k = band.seqlen_k;
    range = decode.splits.part_of(
        packed_kv_tiles(band, {block_m, Shape::kKeys}, rows.first + rows.count, work.first_block),
        work.split);
    lags = rows.first + rows.count > block_m;
    rows.count = min(rows.count, block_m);
  }
  __device__ int kv_tile(const KernelArguments& args, int step) const {
    return scan_tile(args.scan, range, work.wave_parity, step);
  }
};

/// Where a 16-byte chunk of a row's first panel lies in a tile.
__device__ __forceinline__ SharedAddress chunk_address(SharedAddress tile, int row, int chunk) {
  return tile + 128 * row + ((chunk ^ (row & 7)) << 4);
}

/// Starts copying Q by all threads that compute; rows that do not exist are zero.
__device__ __forceinline__ void load_q(const KernelArguments& args, const CtaTile& cta, const Shared& shared,
                                       int thread) {
  const int chunk = thread % 8;
#pragma unroll 1
  for (int row = thread / 8; row < Shape::kRows; row += Shape::kConsumerThreads / 8) {
    const bool exists = cta.rows.has(row);
    const auto* const from = cta.rows.at<const std::uint16_t>(args[TensorName::q], exists ? row : 0);
    const SharedAddress to = chunk_address(shared.q(), row, chunk);
#pragma unroll
    for (int panel = 0; panel < Shape::kPanels; ++panel) {
      const int col = 64 * panel + 8 * chunk;
      const bool copies = exists && col < args.head_dim;
      copy_async_16(to + panel * Shape::q_tile().panel_bytes(), from + (copies ? col : 0), copies);
    }
  }
}

/// The warpgroup that loads tiles of keys, part by part. A thread has the same 16 bytes of each 128 of every
/// 16th row, so that all but where four rows lie is known beforehand.
template <bool kPaged>
struct Loader {
  static constexpr int kRowStep = 16, kRows = Shape::kKeys / kRowStep;
  using Pages = sm80::PagesAhead<Shape::kKeys, Shape::kPagesAhead>;

  const KernelArguments& args;
  const CtaTile& cta;
  Shared shared;
  int thread;
  RingPlace<Shape::kStages> place{};

  __device__ __forceinline__ int first_key_of(int step) const {
    return cta.kv_tile(args, step) * Shape::kKeys;
  }
  __device__ __forceinline__ Pages pages() const { return {shared.pages(), args.kv_pages, cta.work.batch}; }
  /// Starts copying what finds a step's tile.
  __device__ __forceinline__ void find(int step) const {
    if (kPaged && step < cta.range.count()) pages().copy(step, first_key_of(step), thread);
  }
  /// What find() has started and the thread has waited for is there for all.
  __device__ __forceinline__ void meet() const {
    if constexpr (kPaged) sync_named(kAllLoading, kWarpgroupThreads);
  }
  /// Where a thread's chunk of its rows begins, found before the first copy, past which the compiler moves no
  /// load; and of how many panels it exists: of rows behind the last key nothing is read.
  __device__ __forceinline__ void find_rows(int step, const std::uint16_t* (&from)[kRows],
                                            int (&panels)[kRows]) const {
    const DeviceTensor& keys = args[TensorName::k];
    const int first_key = first_key_of(step), row = thread / 8, chunk = thread % 8;
    const int mask = kPaged ? (1 << args.kv_pages.log2_size) - 1 : -1;
    const int* const of_step = kPaged ? pages().of_step(step, first_key) : nullptr;
    int page[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      page[i] = kPaged ? of_step[(first_key & mask) + row + kRowStep * i >> args.kv_pages.log2_size]
                       : cta.work.batch;
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int key = first_key + row + kRowStep * i;
      from[i] = keys.row<const std::uint16_t>(page[i], cta.work.kv_head, key & mask) + 8 * chunk;
      panels[i] = key < cta.seqlen_k ? ceil_div(args.head_dim - 8 * chunk, 64) : 0;
    }
  }
  template <int kPart>
  __device__ __forceinline__ void load_part(const std::uint16_t* const (&from)[kRows],
                                            const int (&panels)[kRows]) const {
    wait(shared.empty(place.stage, kPart), place.empty_parity(), "a free part of a stage");
    const SharedAddress to = chunk_address(shared.k(place.stage), thread / 8, thread % 8);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
      for (int panel = 0; panel < Shape::kPanels; ++panel) {
        if (!Shape::in_part(panel, kPart)) continue;
        copy_async_16(to + 128 * kRowStep * i + panel * Shape::key_tile().panel_bytes(), from[i] + 64 * panel,
                      panel < panels[i]);
      }
    }
  }
  /// Says that a part has come, for which the thread has waited.
  __device__ __forceinline__ void tell(int part) const {
    fence_async_proxy();
    __syncwarp();
    if (thread % 32 == 0) arrive(shared.full(place.stage, part));
  }
  __device__ __forceinline__ void run() {
    find(0);
    commit_copies();
    wait_for_copies<0>();
    meet();
    for (int step = 0; step < cta.range.count(); ++step) {
      const std::uint16_t* from[kRows];
      int panels[kRows];
      find_rows(step, from, panels);
      load_part<0>(from, panels);
      find(step + 1);
      commit_copies();
      load_part<1>(from, panels);
      commit_copies();
      wait_for_copies<1>();
      tell(0);
      wait_for_copies<0>();
      tell(1);
      meet();
      place.advance();
    }
  }
};

}  // namespace tilescope::mla_wgmma
