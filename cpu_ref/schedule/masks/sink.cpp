// SPDX-License-Identifier: Apache-2.0
// Sink tokens beside a window (StreamingLLM, arXiv:2309.17453): the first keys stay in sight when the window
// has moved on. Two runs of tiles, which become one where the window begins among the sink tokens.
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

std::vector<MaskRegion> sink_regions(const AttentionProblem& problem, const VisibleBand& band) {
  const auto tokens = static_cast<int>(problem.mask.numbers[0]);
  VisibleBand without_left_side = band;
  without_left_side.left = kUnbounded;
  const Interval queries{0, band.seqlen_q};
  return {{without_left_side, queries, {0, tokens}}, {band, queries, {tokens, band.seqlen_k}}};
}

void validate_sink(const AttentionProblem& problem) {
  require_one_number_of_keys(problem);
  if (problem.window_left >= 0) return;
  throw bad_mask(
      problem,
      "must stand with a window, as in --window 1023,0: without its left side every query sees the "
      "first keys");
}

void apply_sink_example(AttentionProblem& problem, TileShape tile) {
  problem.causal = true;
  problem.window_left = tile.block_n / 2 + 1;
  problem.seqlen_q = problem.seqlen_k = 4 * tile.block_n + 5;
  problem.mask = {MaskKind::sink, {tile.block_n + 3}};
}

}  // namespace

MaskModel sink_mask() {
  return {.kind = MaskKind::sink,
          .name = "sink",
          .form = "sink:N",
          .summary = "the first N keys stay in sight when the window has moved on: with a window",
          .regions = sink_regions,
          .validate = validate_sink,
          .apply_example = apply_sink_example};
}

}  // namespace tilescope
