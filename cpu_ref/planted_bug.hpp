// SPDX-License-Identifier: Apache-2.0
// Bugs that the tests must see. They exist only in the build that defines TILESCOPE_PLANTED_BUGS
// (the target test_planted_bugs); elsewhere planted() is the constant false and costs nothing.
#pragma once

#include <type_traits>

// name, what goes wrong
#define TILESCOPE_PLANTED_BUG_LIST(X)                                                       \
  /* the schedule */                                                                        \
  X(mask_right_one_more, "a query sees one key too many on the right")                      \
  X(mask_right_one_less, "a query sees one key too few on the right")                       \
  X(mask_left_one_more, "a query sees one key too many on the left")                        \
  X(mask_left_one_less, "a query sees one key too few on the left")                         \
  X(first_query_one_late, "a key is not seen by its first query, where columns are masked") \
  X(last_query_one_early, "a key is not seen by its last query, where columns are masked")  \
  X(mask_aligned_top_left, "masks are aligned top-left, not bottom-right")                  \
  X(last_kv_tile_dropped, "the last kv tile of a q tile is not visited")                    \
  X(last_q_tile_dropped, "the last q tile of a kv tile is not visited")                     \
  X(masked_kv_tile_called_full, "a kv tile that needs a mask is treated as full")           \
  X(masked_q_tile_called_full, "a q tile that needs a mask is treated as full")             \
  X(full_tiles_masked, "full tiles are treated as masked: right, but slow")                 \
  X(hidden_tiles_visited, "kv tiles left of the window are visited: right, but slow")       \
  X(last_block_not_issued, "the grid leaves out the last block of each head")               \
  X(last_head_of_group_skipped, "dK and dV miss the last query head of a group")            \
  X(ragged_bytes_not_clipped, "the program counts whole tiles where the matrix ends")       \
  /* memory */                                                                              \
  X(kv_heads_interleaved, "query head h reads key/value head h % heads_kv")                 \
  X(last_query_row_dropped, "the last query is not computed")                               \
  X(last_key_row_dropped, "the last key is not used")                                       \
  X(last_column_not_stored, "the last column of each stored tile stays unwritten")          \
  X(reduction_overwrites, "a reduction stores instead of adding")                           \
  X(statistics_of_first_tile, "row statistics are always loaded from q tile 0")             \
  /* scale, dropout, rounding */                                                            \
  X(hidden_scores_zero, "hidden entries get the score 0, not -inf")                         \
  X(mask_not_applied, "masked tiles are not masked")                                        \
  X(scale_squared, "the softmax scale is applied twice in the exponent")                    \
  X(scale_sign_lost, "a negative scale is taken as positive")                               \
  X(lse_without_max, "LSE is the logarithm of row_sum alone")                               \
  X(lse_in_base_2, "LSE is a base-2 logarithm")                                             \
  X(dropout_not_rescaled, "kept entries are not divided by 1 - dropout")                    \
  X(dropout_keeps_the_dropped, "dropout is taken for the share that is kept")               \
  X(dropout_of_first_batch, "every batch takes the dropout mask of the first")              \
  X(dropout_transposed_in_backward, "the backward mask swaps query and key")                \
  X(dropout_missing_in_dprobs, "dP is not dropped")                                         \
  X(dropout_missing_in_dv, "dV uses P without dropout")                                     \
  X(philox_nine_rounds, "the dropout bits come from nine rounds of Philox")                 \
  X(scale_rounded, "the softmax scale is held in fp16")                                     \
  X(keep_scale_off, "kept entries are scaled by 0.1 % too much")                            \
  X(exp2_coarse, "2^x from a polynomial of degree 4")                                       \
  X(rounding_truncates, "fp32 is cut, not rounded, to narrower types")                      \
  /* forward */                                                                             \
  X(rescale_lost, "the accumulator is not rescaled when the maximum grows")                 \
  X(rescale_of_next_row, "a row is rescaled by the factor of the next one")                 \
  X(row_max_forgotten, "the running maximum starts anew in every tile")                     \
  X(row_sum_forgotten, "the running sum starts anew in every tile")                         \
  X(scores_rounded, "S is rounded to the element type before the softmax")                  \
  X(accumulator_rounded, "the accumulator is rounded to the element type after every tile") \
  X(lse_rounded, "LSE is rounded to fp16")                                                  \
  X(row_sum_rounded, "row_sum is kept in the element type")                                 \
  X(probs_not_rounded, "P enters its product in fp32, unlike on the GPU")                   \
  X(out_not_cleared, "the accumulator starts with the previous tile's output")              \
  X(out_not_normalised, "the output is not divided by row_sum")                             \
  X(empty_row_divided, "a row that sees no key is divided by its sum of 0")                 \
  X(empty_tile_not_stored, "a q tile that sees no key leaves its output unwritten")         \
  /* backward */                                                                            \
  X(dscores_without_delta, "dS = P * dP")                                                   \
  X(delta_of_first_row, "every row takes the delta of the tile's first")                    \
  X(dscores_not_rounded, "dS enters its products in fp32, unlike on the GPU")               \
  X(empty_row_lse_unguarded, "P = exp(S + inf) for a row that sees no key")                 \
  X(dk_not_scaled, "dK lacks the softmax scale")                                            \
  X(dq_not_scaled, "dQ lacks the softmax scale")                                            \
  X(dk_not_cleared, "dK starts with the previous tile's")                                   \
  X(dv_of_last_head, "dV starts anew for every query head of a group")                      \
  X(dq_accum_not_cleared, "dQ is added to memory that nobody cleared")                      \
  X(last_step_of_dq_skipped, "dQ misses the last kv tile")                                  \
  /* flash1 */                                                                              \
  X(flash1_row_max_not_stored, "the maximum in memory stays that of the first tile")        \
  X(flash1_out_weight_without_sum, "the old output is weighted without its row_sum")        \
  X(flash1_tile_weight_missing, "a tile's P stay relative to its own maximum")              \
  X(flash1_row_sum_not_initialised, "row_sum is not written before its first read")         \
  X(flash1_backward_not_normalised, "the backward pass recomputes P without row_sum")       \
  /* standard */                                                                            \
  X(standard_delta_missing, "dS = P * dP in standard attention")                            \
  X(standard_scale_ignored, "standard attention always scales by 1 / sqrt(head_dim)")

namespace tilescope {

enum class PlantedBug : int {
  none,
#define TILESCOPE_ENUMERATOR(name, what) name,
  TILESCOPE_PLANTED_BUG_LIST(TILESCOPE_ENUMERATOR)
#undef TILESCOPE_ENUMERATOR
};

#ifdef TILESCOPE_PLANTED_BUGS
inline PlantedBug active_bug = PlantedBug::none;
/// Whether the build is asked to misbehave in this way. Never during constant evaluation, which includes the
/// initialiser of a const integer that would be constant without the bug.
constexpr bool planted(PlantedBug bug) { return !std::is_constant_evaluated() && active_bug == bug; }
#elif defined(__CUDACC__)
__host__ __device__ constexpr bool planted(PlantedBug) { return false; }
#else
constexpr bool planted(PlantedBug) { return false; }
#endif

}  // namespace tilescope
