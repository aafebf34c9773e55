// SPDX-License-Identifier: Apache-2.0
// Prefix-LM (arXiv:1910.10683, section 3.2.1): every query sees the first keys, and of the others what a
// causal mask leaves.
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

std::vector<MaskRegion> prefix_regions(const AttentionProblem& problem, const VisibleBand& band) {
  const auto keys = static_cast<int>(problem.mask.numbers[0]);
  VisibleBand all = band;
  all.left = all.right = kUnbounded;
  const Interval queries{0, band.seqlen_q};
  return {{all, queries, {0, keys}}, {band, queries, {keys, band.seqlen_k}}};
}

void validate_prefix(const AttentionProblem& problem) {
  require_one_number_of_keys(problem);
  if (problem.causal || problem.windowed()) return;
  throw bad_mask(problem, "must stand with --causal, or a window: without them every query sees every key");
}

void apply_prefix_example(AttentionProblem& problem, TileShape tile) {
  problem.causal = true;
  problem.mask = {MaskKind::prefix, {tile.block_n + tile.block_n / 2 + 1}};
}

}  // namespace

MaskModel prefix_mask() {
  return {.kind = MaskKind::prefix,
          .name = "prefix",
          .form = "prefix:N",
          .summary = "prefix-LM: all queries see the first N keys, and the others by --causal",
          .regions = prefix_regions,
          .validate = validate_prefix,
          .apply_example = apply_prefix_example};
}

}  // namespace tilescope
