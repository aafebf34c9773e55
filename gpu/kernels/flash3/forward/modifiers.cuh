// SPDX-License-Identifier: Apache-2.0
// Score modifiers of flash3's forward pass (cpu_ref/schedule/score_mods.hpp), on a warpgroup's scores in
// registers: soft cap, then ALiBi. Which of them a problem has is found out at run time, so that one instance
// serves all; no warp takes part of a branch. A learned sink is what rows begin with: begin_with_sink() of
// softmax.cuh.
//
// ALiBi is added where a step's exponents are taken, in one block with these; in registers, before, where a
// mask cuts the step or its scores ask for higher maxima.
#pragma once

#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/softmax.cuh"
#include "gpu/kernels/flash3/forward/tables.cuh"
#include "gpu/primitives/common/computed_again.cuh"
#include "gpu/primitives/common/score.cuh"
#include "gpu/primitives/sm90/fragments.hpp"

namespace tilescope::gpu::detail {

/// Slope and sink of an item's head, which the loading thread asks for once for all warpgroups.
/// @param any  whether the item has tiles: where there are none no score needs a slope
__device__ __forceinline__ void load_head_numbers(const Flash3ScoreMods& mods, int head, bool any,
                                                  sm90::SharedAddress slot) {
  if (mods.slopes && any) store_word(slot, __float_as_int(__ldcg(mods.slopes + head)));
  if (mods.sinks) store_word(slot + 4, __float_as_int(__ldcg(mods.sinks + head)));
}
/// On to a warpgroup.
__device__ __forceinline__ void copy_head_numbers(sm90::SharedAddress from, sm90::SharedAddress to) {
  store_word(to, load_word(from));
  store_word(to + 4, load_word(from + 4));
}
__device__ __forceinline__ float slope_of(sm90::SharedAddress slot) {
  return __int_as_float(load_word(slot));
}
__device__ __forceinline__ float sink_of(sm90::SharedAddress slot) {
  return __int_as_float(load_word(slot + 4));
}

__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// cap tanh(score / cap), with the sign of the scale. Where no score of a warp lies above half of the cap, by
/// a polynomial; else as cap - 2 cap / (1 + e^(2 score / cap)), two results of the special function unit a
/// score, right to 4e-7 of the cap.
template <int kScores>
__device__ __forceinline__ void cap_scores(float (&scores)[kScores], const Flash3ScoreMods& mods) {
  float most[2] = {};
#pragma unroll
  for (int i = 0; i < kScores; ++i) most[i % 2] = fmaxf(most[i % 2], fabsf(scores[i]));
  if (__all_sync(0xFFFFFFFFu, fmaxf(most[0], most[1]) <= mods.most_by_terms)) {
    const float last = mods.tanh_terms[3];
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      const float square = scores[i] * scores[i];
      float terms = fmaf(last, square, mods.tanh_terms[2]);
      terms = fmaf(terms, square, mods.tanh_terms[1]);
      terms = fmaf(terms, square, mods.tanh_terms[0]);
      scores[i] *= terms;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const float share = reciprocal_approx(1.0f + exp2_approx(scores[i] * mods.exponent));
    scores[i] = fmaf(share, mods.minus_twice, mods.softcap);
  }
}

/// The sign of ALiBi's change from one key to the next: 1 before the diagonal, -1 behind it, 0 if the
/// diagonal crosses the warpgroup's tile.
/// @param behind  how many keys the first key lies behind the diagonal of the first row
/// @param all_before  whether the mask hides all keys behind the diagonal
template <int kKeys>
__device__ __forceinline__ float alibi_direction(int behind, bool all_before) {
  if (all_before || behind + kKeys - 1 <= 0) return 1.0f;
  return behind - (sm90::kWarpgroupRows - 1) >= 0 ? -1.0f : 0.0f;
}

/// score - slope |distance|, of scores times `sign`.
/// @param slope  in units of the scores
/// @param behind, all_before  of alibi_direction()
template <int kScores>
__device__ __forceinline__ void add_alibi(float (&scores)[kScores], float sign, float slope, int behind,
                                          bool all_before, int thread) {
  const sm90::Entry first = sm90::accumulator_entry(computed_again(thread), 0);
  const float from = static_cast<float>(behind + first.col - first.row);
  const float direction = alibi_direction<2 * kScores>(behind, all_before);
  // On one side of the diagonal the distance is linear.
  if (direction != 0.0f) {
    const float step = direction * slope;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float of_row = step * (from - 8.0f * static_cast<float>(half));
#pragma unroll
      for (int i = 2 * half; i < kScores; i += 4) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const auto key = static_cast<float>(sm90::accumulator_entry(0, i + e).col);
          scores[i + e] = fmaf(sign, scores[i + e], fmaf(step, key, of_row));
        }
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) {
    const sm90::Entry entry = sm90::accumulator_entry(0, i);
    const float distance = fabsf(from + static_cast<float>(entry.col - entry.row));
    scores[i] = fmaf(-slope, distance, sign * scores[i]);
  }
}

/// Where an item's steps modify their scores.
enum class Flash3Modifying : std::uint8_t {
  nowhere,    // there is nothing to modify
  registers,  // under a soft cap; observed instances log them
  exponents,  // ALiBi, or a negative scale: where exponents are taken
};

/// Exponents of scores with ALiBi on one side of the diagonal: an addition more than without.
/// @param step  of a key, in units of exponents
__device__ __forceinline__ auto alibi_exponents(const Flash3Rows& rows, float exponent_scale, float step,
                                                int behind, int thread) {
  const sm90::Entry first = sm90::accumulator_entry(computed_again(thread), 0);
  const float from = static_cast<float>(behind + first.col - first.row);
  const float upper = fmaf(step, from, rows.shift[0]), lower = fmaf(step, from - 8.0f, rows.shift[1]);
  return [=](int i, float score) {
    const auto key = static_cast<float>(sm90::accumulator_entry(0, i).col);
    return fmaf(score, exponent_scale, fmaf(step, key, i / 2 % 2 == 0 ? upper : lower));
  };
}

/// Products of Q and K become modified scores, in units of products and with the sign of the scale. The order
/// is that of for_each_score_mod (score_mods.hpp). A mask of tables may show keys behind the diagonal that
/// the band hides, as a prefix does.
/// @param numbers  of the item's head; first_query, first_key  of the warpgroup's tile
template <Flash3ForwardShape kShape, int kScores>
__device__ __forceinline__ void modify_scores(float (&scores)[kScores], const Flash3ModifierArguments& args,
                                              sm90::SharedAddress numbers, int first_query, int first_key,
                                              int thread) {
  const Flash3ScoreMods& mods = args.mods;
  if constexpr (kShape.caps) {
    if (mods.softcap > 0.0f) cap_scores(scores, mods);
  }
  if (mods.slopes) {
    add_alibi(scores, mods.sign, slope_of(numbers) * mods.per_scale,
              first_key - first_query - args.band.offset(), !kShape.tables && args.band.right <= 0, thread);
  } else if (mods.sign < 0.0f) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] = -scores[i];
  }
}

}  // namespace tilescope::gpu::detail
