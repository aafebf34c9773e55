// SPDX-License-Identifier: Apache-2.0
// Block-causal attention, as models that write a block of tokens at a time have it (Block Diffusion,
// arXiv:2503.09573): a query sees all keys of its own block and of those before.
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

std::vector<MaskRegion> block_causal_regions(const AttentionProblem& problem, const VisibleBand& band) {
  const auto size = static_cast<int>(problem.mask.numbers[0]);
  const auto seqlen_k = static_cast<int>(problem.seqlen_k), offset = seqlen_k - band.seqlen_q;
  std::vector<MaskRegion> regions;
  for (int first = 0; first < seqlen_k; first += size) {
    regions.push_back({band, {first - offset, first - offset + size}, {0, first + size}});
  }
  return regions;
}

void validate_block_causal(const AttentionProblem& problem) {
  require_one_number_of_keys(problem);
  if (!problem.causal) return;
  throw bad_mask(problem, "must stand without --causal, which hides what a query's own block has behind it");
}

void apply_block_causal_example(AttentionProblem& problem, TileShape tile) {
  problem.mask = {MaskKind::block_causal, {tile.block_n / 2 + 1}};
}

}  // namespace

MaskModel block_causal_mask() {
  return {.kind = MaskKind::block_causal,
          .name = "block-causal",
          .form = "block-causal:N",
          .summary = "a query sees its own block of N tokens and those before",
          .regions = block_causal_regions,
          .validate = validate_block_causal,
          .apply_example = apply_block_causal_example};
}

}  // namespace tilescope
