// SPDX-License-Identifier: Apache-2.0
// One step of flash3's forward pass: the scores of a tile of keys, their softmax, and O of the tile before.
//
// What each step gave, and what was tried and left out: ../NOTES.md.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/modifiers.cuh"
#include "gpu/kernels/flash3/forward/observed.cuh"
#include "gpu/kernels/flash3/forward/softmax.cuh"
#include "gpu/kernels/flash3/forward/walk.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/fences.cuh"
#include "gpu/primitives/sm90/fragments.hpp"
#include "gpu/primitives/sm90/named_barrier.cuh"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu::detail {

/// What a warpgroup computes with: scores and P of its keys, rows of O, their maxima and sums.
/// @tparam kObserved  logs the tiles that it visits, and leaves out, and what P of each row is relative to
template <sm90::WgmmaType kType, Flash3ForwardShape kShape, bool kObserved>
struct Flash3ForwardStep : Flash3ForwardWalk<kShape> {
  using Walk = Flash3ForwardWalk<kShape>;
  using Walk::args, Walk::shared, Walk::group, Walk::thread, Walk::q, Walk::k, Walk::v;
  using Walk::item, Walk::range, Walk::own_begin, Walk::own_end, Walk::kBlockN, Walk::kSplits;
  using Walk::kTables, Walk::kMods, Walk::visit, Walk::look_at_tile;
  using Walk::lane, Walk::first_query, Walk::release_k, Walk::release_v, Walk::needs_mask;
  static constexpr int kHeadDim = kShape.head_dim, kValueDim = kShape.values();
  static constexpr int kKeys = kSplits ? kShape.own_keys() : kBlockN, kScores = kKeys / 2,
                       kOutputs = kValueDim / 2;
  static constexpr bool kKept = kShape.scores == Flash3Scores::kept;
  static constexpr int kFirstPingPong = 1, kFirstVote = 8;  // of the named barriers

  int own_key;  // the first of its part of a tile's keys
  std::uint32_t own_key_bytes;
  float scores[kScores];
  std::uint32_t probs[kScores / 2];
  float out[kOutputs];
  Flash3Rows rows;
  bool v_ready = false;

  __device__ __forceinline__ Flash3ForwardStep(const Flash3ArgumentsOf<kShape.mods, kShape.paged>& args,
                                               Flash3Shared<kShape> shared, const Flash3Item* items,
                                               int group, int thread)
      : Walk{args, shared, items, group, thread, kShape.splits_keys ? 0 : group},
        own_key(kSplits ? kKeys * group : 0),
        own_key_bytes(128u * static_cast<std::uint32_t>(own_key)) {}

  // Ping-pong: a warpgroup waits for its own barrier and, its WGMMAs issued, arrives at the next one's.
  __device__ __forceinline__ void await_ping_pong() {
    if constexpr (kShape.ping_pong) sm90::sync_named(kFirstPingPong + group, 256);
  }
  __device__ __forceinline__ void pass_ping_pong() {
    if constexpr (kShape.ping_pong)
      sm90::arrive_named(kFirstPingPong + (group + 1) % kShape.consumers(), 256);
  }
  __device__ __forceinline__ void multiply_scores(int k_stage) {
    constexpr sm90::PanelTile kQTile = kShape.q_tile(), kKTile = kShape.k_tile();
    const sm90::Operand left(kQTile, sm90::Major::k, q.buffer());
    const sm90::Operand right(kKTile, sm90::Major::k, k.buffer_at(k_stage) + own_key_bytes);
#pragma unroll
    for (int step = 0; step < kHeadDim / 16; ++step) {
      sm90::multiply<kKeys, kType>(scores, left.at(k_step(kQTile, sm90::Major::k, step)),
                                   right.at(k_step(kKTile, sm90::Major::k, step)), step > 0);
    }
    sm90::commit_wgmma();
  }
  __device__ __forceinline__ void multiply_values() {
    constexpr sm90::PanelTile kVTile = kShape.v_tile();
    const sm90::Operand right(kVTile, sm90::Major::mn, v.buffer() + own_key_bytes);
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      sm90::multiply<kValueDim, kType, sm90::Major::mn>(
          out, probs + 4 * step, right.at(k_step(kVTile, sm90::Major::mn, step)), true);
    }
    sm90::commit_wgmma();
  }
  __device__ __forceinline__ int n_block(int step) const {
    if constexpr (kTables) return visit.tile;
    return scan_tile(args.scan, range, item.wave_parity(), step);
  }
  /// Where its rows' maxima stand in the tile log.
  __device__ __forceinline__ int first_row_of_log() const {
    return kSplits ? group * kShape.tile.block_m : item.template first_row<kShape>(group);
  }
  __device__ __forceinline__ void mask_tile(int step) {
    const float sign = kMods ? 1.0f : args.score_sign;
    if constexpr (kTables) return mask_rows_by_bits(scores, sign, visit.bits, thread);
    const int block = n_block(step);
    mask_rows<kShape>(scores, sign, args, first_query(item), block * kBlockN + own_key, thread);
  }

  /// Scores of a step become modified ones, with the sign of the scale.
  __device__ __forceinline__ void modify_tile(int step) {
    if constexpr (kMods) {
      modify_scores<kShape>(scores, args, shared.head_numbers(q.index()), first_query(item),
                            n_block(step) * kBlockN, thread);
    }
  }
  /// How many keys a step's first key lies behind the diagonal of its first row.
  __device__ __forceinline__ int keys_behind(int step) const {
    return n_block(step) * kBlockN - first_query(item) - args.band.offset();
  }
  /// Whether the mask hides all keys behind the diagonal.
  __device__ __forceinline__ bool all_before() const { return !kTables && args.band.right <= 0; }
  __device__ __forceinline__ auto modified_exponents(int step) const {
    const int behind = keys_behind(step);
    const float slope =
        args.mods.slopes ? slope_of(shared.head_numbers(q.index())) * args.mods.per_scale : 0.0f;
    const float step_of_key = alibi_direction<kBlockN>(behind, all_before()) * slope * args.exponent_scale;
    return alibi_exponents(rows, args.mods.sign * args.exponent_scale, step_of_key, behind, thread);
  }
  /// Whether those serve a step that no mask cuts.
  __device__ __forceinline__ bool may_modify_exponents(int step) const {
    return !args.mods.slopes || alibi_direction<kBlockN>(keys_behind(step), all_before()) != 0.0f;
  }

  /// What the softmax of a row that has seen no key begins with.
  __device__ __forceinline__ float sink() const {
    if constexpr (kMods) {
      if (args.mods.sinks) return sink_of(shared.head_numbers(q.index()));
    }
    return kMinusInfinity;
  }

  /// The first tile of an item, its scores being there.
  __device__ __forceinline__ void first_softmax() {
    release_k();
    modify_tile(own_begin);
    if (needs_mask(own_begin)) mask_tile(own_begin);
    if constexpr (kObserved) log_scores(*this, own_begin);
    rows = Flash3Rows::starting(kShape.skips || first_query(item) < args.band.seqlen_q);
    if constexpr (kMods) rows.begin_with_sink(sink() * args.mods.per_scale, lane());
    if (group == 0 && thread == 0) note_step(args.clock, 0, item.index());
    float tile_sum[2];
    rows.raise_to(scores, args.exponent_scale);
    rows.exponentiate(scores, args.exponent_scale, tile_sum);
    rows.add(tile_sum);
    sm90::pack_operands<kType>(scores, probs);
    if constexpr (kObserved) log_softmax<kType>(*this, own_begin);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) out[i] = 0.0f;
    if (own_end > own_begin + 1) {
      k.wait_full("the second K");
    }
  }

  /// Gives back a K that is no longer the pipe's own place.
  __device__ __forceinline__ void release_k_at(int stage) const {
    if (lane() == 0) sm90::arrive(k.empty_at(stage));
  }
  /// S of tile `step` and P V of the one before, which are issued together; then the softmax of the former
  /// runs beside the latter.
  template <Flash3Modifying kModifying>
  __device__ __forceinline__ void compute_step(int step) {
    constexpr bool kByExponents = kModifying == Flash3Modifying::exponents;
    if (!v_ready) v.wait_full("V");
    await_ping_pong();
    sm90::fence_wgmma();
    const int k_stage = k.stage();
    multiply_scores(k_stage);
    multiply_values();
    pass_ping_pong();
    look_at_tile(k_stage);
    // Asked early, since the answer takes a while.
    k.advance();
    const auto next_v = v.place.next();
    const bool k_ready = step + 1 == own_end || k.is_full(k.place);
    v_ready = v.is_full(next_v);
    sm90::wait_for_wgmma<kShape.overlaps ? 1 : 0>();
    if constexpr (kModifying == Flash3Modifying::registers) modify_tile(step);
    float tile_sum[2];
    const bool masked = needs_mask(step);  // few steps are, and a row sees its first keys in one of them
    bool in_registers = masked;            // the softmax takes scores that were modified in registers
    if constexpr (kByExponents) {
      in_registers = masked || !may_modify_exponents(step);
      if (in_registers) modify_tile(step);
    }
    bool raised = false;  // a maximum was, and what was summed before must be rescaled
    if (in_registers) {
      if (masked) mask_tile(step);
      rows.raise_to(scores, args.exponent_scale);
      raised = true;
    }
    if constexpr (kObserved) log_scores(*this, step);
    [[maybe_unused]] std::uint32_t next_probs[kScores / 2];
    bool again;
    const auto exponentiate = [&](auto&& exponents) {
      if constexpr (kKept) {
        rows.template exponentiate_into_by<kType>(next_probs, scores, exponents, tile_sum);
      } else {
        rows.exponentiate_by(scores, exponents, tile_sum);
      }
    };
    const auto exponentiate_scores = [&] { exponentiate(rows.of_score(args.exponent_scale)); };
    const auto exponentiate_first = [&] {
      if constexpr (kByExponents) {
        if (!raised) return exponentiate(modified_exponents(step));
      }
      exponentiate_scores();
    };
    if constexpr (kKept) {
      release_k_at(k_stage);
      exponentiate_first();
      again = __any_sync(0xFFFFFFFFu, !rows.maxima_suffice(tile_sum)) && !raised;
      if (again) {
        if constexpr (kByExponents) modify_tile(step);
        rows.raise_to(scores, args.exponent_scale);
        exponentiate_scores();
      }
    } else {
      exponentiate_first();
      // A WGMMA is for the whole warpgroup to do again. (The vote tells the compiler that a warp agrees.)
      again = __any_sync(0xFFFFFFFFu, sm90::any_at_named(kFirstVote + group, 128,
                                                         !raised && !rows.maxima_suffice(tile_sum)));
      if (!again) release_k_at(k_stage);
    }
    // A place where control flow meets: ptxas would move the wait for P V above the exponentials if the two
    // stood in one block.
    if (!k_ready) k.wait_full("the next K");
    sm90::wait_for_wgmma<0>();
    release_v();
    if constexpr (kObserved) log_output(*this, item, step - 1);
    if constexpr (!kKept) {
      if (again) {
        sm90::fence_wgmma();
        multiply_scores(k_stage);
        sm90::wait_for_wgmma<0>();
        release_k_at(k_stage);
        if constexpr (kModifying != Flash3Modifying::nowhere) modify_tile(step);
        rows.raise_to(scores, args.exponent_scale);
        rows.exponentiate(scores, args.exponent_scale, tile_sum);
      }
    }
    rows.add(tile_sum);
    if (raised || again) rows.rescale(out);
    if constexpr (kKept) {
      // ptxas takes no definition of an operand while WGMMAs run, not even of the next one's: hence a copy,
      // which it must not see through.
#pragma unroll
      for (int i = 0; i < kScores / 2; ++i) {
        asm volatile("xor.b32 %0, %1, 0;" : "=r"(probs[i]) : "r"(next_probs[i]));
      }
    } else {
      sm90::pack_operands<kType>(scores, probs);
    }
    if constexpr (kObserved) log_softmax<kType>(*this, step);
  }
};

}  // namespace tilescope::gpu::detail
