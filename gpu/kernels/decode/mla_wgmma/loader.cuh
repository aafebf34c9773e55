// SPDX-License-Identifier: Apache-2.0
// How latent queries and keys come to shared memory as wgmma reads it. By cp.async, not by the copy engine: keys
// lie in pages of 8 and more, behind a sequence's last one is anything, and V, which is K, must be 0 there.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/shape.hpp"
#include "gpu/kernels/decode/rows.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/primitives/sm80/paged_tile.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/mbarrier.cuh"
#include "gpu/primitives/sm90/named_barrier.cuh"

namespace tilescope::mla_wgmma {

using namespace gpu::sm90;
using Shape = MlaWgmmaShape;

/// Of the named barriers. The loaders of a stage have one each.
enum Barrier { kAllComputing = 1, kProbsThere, kProbsRead, kNormalisersThere, kScoresThere, kFirstOfLoaders };

/// Shared memory of a CTA, by address.
struct Shared {
  unsigned char* bytes;
  SharedAddress base;

  __device__ SharedAddress q() const { return base + Shape::q(); }
  __device__ SharedAddress k(int stage) const { return base + Shape::k(0) + stage * Shape::key_tile().bytes(); }
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
};

/// What a CTA computes: one q tile, from a split of the keys that it sees.
struct CtaTile {
  CtaWork work;
  DecodeRows rows;
  TileRange range;
  int seqlen_k;

  /// @param block_m  rows of a q tile; the CTA's other rows stay empty
  __device__ CtaTile(const KernelArguments& args, const DecodeArguments& decode, int block_m)
      : work(decode_work(args, decode)), rows(args, decode, work, block_m) {
    const VisibleBand band = batch_band<true>(args, work.batch);
    seqlen_k = band.seqlen_k;
    range = decode.splits.part_of(
        packed_kv_tiles(band, {block_m, Shape::kKeys}, rows.first + rows.count, work.first_block), work.split);
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

/// A warp that loads one part of every second tile of keys.
template <bool kPaged, int kPart>
struct Loader {
  static constexpr int kRowStep = 4;                                           // a warp's rows at once
  static constexpr int kTogether = static_cast<int>(kLeastPageSize);           // rows of one page for certain
  static constexpr int kRuns = Shape::kKeys / kTogether;
  using Pages = sm80::PagesAhead<Shape::kKeys, Shape::kPagesAhead>;

  const KernelArguments& args;
  const CtaTile& cta;
  Shared shared;
  int stage, lane;

  __device__ __forceinline__ int first_key_of(int step) const { return cta.kv_tile(args, step) * Shape::kKeys; }
  __device__ __forceinline__ Pages pages() const { return {shared.pages(), args.kv_pages, cta.work.batch}; }
  /// Starts copying what finds a step's tile; one of the stage's two warps does so for both.
  __device__ __forceinline__ void find(int step) const {
    if (kPaged && kPart == 0 && step < cta.range.count()) pages().copy(step, first_key_of(step), lane);
  }
  /// The pages of a tile's runs of rows, found before the first copy, past which the compiler moves no load.
  __device__ __forceinline__ void find_runs(int step, int first_key, int (&run_pages)[kRuns]) const {
    if constexpr (kPaged) {
      const int* const of_step = pages().of_step(step, first_key);
      const int log2_size = args.kv_pages.log2_size, in_page = first_key & ((1 << log2_size) - 1);
#pragma unroll
      for (int i = 0; i < kRuns; ++i) run_pages[i] = of_step[in_page + kTogether * i >> log2_size];
    }
  }
  /// Starts copying its part of a tile. Of rows that do not exist nothing is read.
  __device__ __forceinline__ void load(int step) const {
    const DeviceTensor& keys = args[TensorName::k];
    const int first_key = first_key_of(step), rows = cta.seqlen_k - first_key;
    const int page_mask = kPaged ? (1 << args.kv_pages.log2_size) - 1 : -1;
    const int row = lane / 8, chunk = lane % 8;
    int run_pages[kRuns];
    find_runs(step, first_key, run_pages);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / kRowStep; ++i) {
      const int in_tile = row + i * kRowStep;
      const auto* const from =
          keys.row<const std::uint16_t>(kPaged ? run_pages[i * kRowStep / kTogether] : cta.work.batch,
                                        cta.work.kv_head, first_key + in_tile & page_mask) +
          8 * chunk;
      const SharedAddress to = chunk_address(shared.k(stage), in_tile, chunk);
#pragma unroll
      for (int panel = 0; panel < Shape::kPanels; ++panel) {
        if (!Shape::in_part(panel, kPart)) continue;
        const bool copies = in_tile < rows && 64 * panel + 8 * chunk < args.head_dim;
        copy_async_16(to + panel * Shape::key_tile().panel_bytes(), from + 64 * panel, copies);
      }
    }
  }
  __device__ __forceinline__ void run() const {
    const auto wait_for_own = [] {
      commit_copies();
      wait_for_copies<0>();
    };
    if constexpr (kPaged) {
      find(stage);
      wait_for_own();
    }
    RingPlace<1> place;
    for (int step = stage; step < cta.range.count(); step += Shape::kStages) {
      if constexpr (kPaged) sync_named(kFirstOfLoaders + stage, 32 * Shape::kParts);  // pages are there
      wait(shared.empty(stage, kPart), place.empty_parity(), "a free part of a stage");
      load(step);
      find(step + Shape::kStages);
      wait_for_own();
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) arrive(shared.full(stage, kPart));
      place.advance();
    }
  }
};

}  // namespace tilescope::mla_wgmma
