// SPDX-License-Identifier: Apache-2.0
// Where dQ is summed: kv tiles add their parts to it in memory, by the copy engine. A computing warpgroup
// puts its part into boxes in shared memory (put_dq(), consumer.cuh); a thread that does nothing else sends
// them, in the order that the q tile's semaphore asks for.
#pragma once

#include "gpu/kernels/flash3/backward/tables.cuh"
#include "gpu/kernels/flash3/backward/walk.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/tma.cuh"

namespace tilescope::gpu::detail {

/// Where the `i`-th of a tile's boxes of dQ passes: a ring that comes round with the tiles, or, of an odd
/// number of boxes, with every other one.
template <Flash3BackwardShape kShape, int kGroup>
struct DqRound {
  static constexpr int kBoxes = kShape.dq_boxes(kGroup);
  static constexpr int kStages = kBoxes < kShape.dq_stages() ? std::max(kBoxes, 1) : kShape.dq_stages();
  static constexpr bool kWithTiles = kBoxes % kStages == 0;
  static_assert(kWithTiles || kStages == 2);
  std::uint32_t round = 0;  // of the ring: a bit; or the boxes before

  static __device__ __forceinline__ constexpr int stage(int i) requires(kWithTiles) { return i % kStages; }
  __device__ __forceinline__ int stage(int i) const requires(!kWithTiles) {
    return static_cast<int>(round + static_cast<std::uint32_t>(i)) % kStages;
  }
  __device__ __forceinline__ std::uint32_t full_parity(int i) const {
    if constexpr (kWithTiles) return round ^ static_cast<std::uint32_t>(i / kStages & 1);
    return (round + static_cast<std::uint32_t>(i)) / kStages & 1;
  }
  __device__ __forceinline__ std::uint32_t empty_parity(int i) const { return full_parity(i) ^ 1; }
  __device__ __forceinline__ void advance() {
    if constexpr (kWithTiles) {
      round ^= kBoxes / kStages & 1;
    } else {
      round = (round + kBoxes) % (2 * kStages);
    }
  }
};

/// The flag of a q tile whose sums have been sent: others are told once they are there.
struct DqToTell {
  int* flag = nullptr;

  __device__ __forceinline__ void tell() {
    if (flag == nullptr) return;
    sm90::wait_for_stores<0>();
    sm90::count_up(flag);
    flag = nullptr;
  }
};

/// The semaphore of a q tile's dQ, or of a slot of it: what a kv tile does with its part, and when (DqStart).
template <Flash3BackwardShape kShape, int kGroup>
struct DqSemaphore {
  const Flash3BackwardArguments& args;
  const Flash3Stream<kShape>& stream;
  int head, m_block;
  bool stores = false;
  unsigned place = 0;  // of the flags [16 bytes]
  int slot = 0;        // in an ordered pass

  __device__ __forceinline__ void find_place() {
    place = stream.batch * args.flag_batch_stride + head * args.flag_head_stride +
            m_block * args.flag_tile_stride;
  }
  __device__ __forceinline__ int* flag() const {
    int* const first = args.dq_flags + std::uint64_t{place} * 4 + kGroup;
    return kShape.ordered ? first + kShape.flags() * slot : first;
  }
  /// Of all slots' batch entries.
  __device__ __forceinline__ int entry() const {
    return kShape.ordered ? stream.batch + slot * args.batches : stream.batch;
  }
  /// Kv tiles of the q tile in front of this one. They belong to CTAs that were issued earlier, so that a
  /// wait for them ends.
  __device__ __forceinline__ int before() const {
    return kv_tiles_before<kShape>(args, stream.n_block, m_block);
  }
  /// While dQ is being computed: who is in front has stored a step ago, as a rule.
  /// @param sent  of the q tile before this one, of which others are told now
  __device__ __forceinline__ void begin([[maybe_unused]] DqToTell& sent) {
    if constexpr (kShape.ordered) {
      const int in_front = before(), in_slot = args.dq_slots.before_in_slot(in_front);
      slot = args.dq_slots.slot(in_front);
      stores = in_slot == 0;
      find_place();
      // Asked before the last stores are waited for, which takes as long.
      const bool there = stores || sm90::count_at(flag()) >= in_slot;
      sent.tell();
      if (!there) sm90::wait_for_count(flag(), in_slot);
    } else if constexpr (!kShape.persistent) {
      stores = args.dq_flags && before() == 0;
      find_place();
      if (args.dq_flags && !stores) sm90::wait_for_count(flag(), 1);
    }
  }
  /// Two launches of persistent CTAs could wait for each other's first kv tiles. There whoever comes claims
  /// the q tile, and others wait only for one that is storing.
  __device__ __forceinline__ void wait() {
    if constexpr (kShape.persistent) {
      if (!args.dq_flags) return;
      find_place();
      const int state = sm90::claim(flag());
      stores = state == 0;
      if (state == 1) sm90::wait_for_count(flag(), 2);
    }
  }
  __device__ __forceinline__ void release(DqToTell& sent) const {
    if (kShape.ordered ? args.dq_flags == nullptr : !stores) return;
    sent.flag = flag();
    if constexpr (!kShape.ordered) sent.tell();
  }
};

/// One thread. Adds what its computing warpgroup, or all, have of dQ to memory, or stores it there, a box of
/// 32 columns after the other, of one warpgroup after the other.
template <Flash3BackwardShape kShape, int kSender>
__device__ __forceinline__ void send_dq(const Flash3BackwardArguments& args,
                                        Flash3BackwardShared<kShape> shared) {
  DqRound<kShape, kSender> round;
  constexpr int kGroups = kShape.dq_groups() / kShape.senders(), kBoxes = round.kBoxes * kGroups;
  constexpr auto group_of = [](int i) { return kSender + i % kGroups; };
  const auto give_back = [&](int i) {
    sm90::arrive(shared.dq(group_of(i)).empty_at(round.stage(i / kGroups)));
  };
  static_assert(kGroups * round.kStages > 1 || kBoxes == 1, "a box is given back when the next one is sent");
  [[maybe_unused]] auto visits = shared.visits();
  DqToTell sent;
  each_tile<kShape>(args, shared, [&](const Flash3Stream<kShape>& stream, int head, int m_block) {
    if constexpr (kShape.tables) m_block = told_tile(visits);
    DqSemaphore<kShape, kSender> semaphore{args, stream, head, m_block};
    semaphore.begin(sent);
    const int first_query = m_block * kShape.tile.block_m + (kShape.dq_by_queries() ? 64 * kSender : 0);
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      const int group = group_of(i), box_of_group = i / kGroups, stage = round.stage(box_of_group);
      const auto dq = shared.dq(group);
      sm90::wait(dq.full_at(stage), round.full_parity(box_of_group), "dQ");
      if (i == 0) semaphore.wait();
#pragma unroll
      for (int panel = 0; panel < kShape.dq_box().panels(); ++panel) {
        const int col = kShape.dq_col(group, box_of_group) + panel * kShape.dq_box().panel_cols();
        if (col >= args.head_dim || first_query >= args.band.seqlen_q) continue;
        const std::uint32_t box = dq.buffer_at(stage) + panel * kShape.dq_box().panel_bytes();
        if (semaphore.stores) {
          sm90::store_box(args.dq_accum, box, col, first_query, head, semaphore.entry());
        } else {
          sm90::add_box(args.dq_accum, box, col, first_query, head, semaphore.entry());
        }
      }
      sm90::commit_stores();
      if (i > 0) {  // the box before this one has been read
        sm90::wait_for_store_reads<1>();
        give_back(i - 1);
      }
    }
    sm90::wait_for_store_reads<0>();
    give_back(kBoxes - 1);
    round.advance();
    semaphore.release(sent);
  });
  if constexpr (kShape.ordered) sent.tell();
}

}  // namespace tilescope::gpu::detail
