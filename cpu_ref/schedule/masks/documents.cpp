// SPDX-License-Identifier: Apache-2.0
// Documents packed side by side into one sequence: no query sees a key of another document.
#include <numeric>

#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

std::vector<MaskRegion> documents_regions(const AttentionProblem& problem, const VisibleBand& band) {
  std::vector<MaskRegion> documents;
  int begin = 0;
  for (const std::int64_t length : problem.mask.numbers) {
    const Interval tokens{begin, begin + static_cast<int>(length)};
    if (length > 0) documents.push_back({band, tokens, tokens});
    begin = tokens.end;
  }
  return documents;
}

/// Of lengths whose sum need not fit 64 bits: one more than any problem has where it is too large.
std::int64_t tokens_of(const MaskRule& rule) {
  return std::accumulate(rule.numbers.begin(), rule.numbers.end(), std::int64_t{0},
                         [](std::int64_t sum, std::int64_t length) {
                           return std::min(kMaxSeqlen + 1, sum + std::min(length, kMaxSeqlen + 1));
                         });
}

void validate_documents(const AttentionProblem& problem) {
  if (problem.seqlen_q != problem.seqlen_k) {
    throw bad_mask(problem, "must stand with as many queries as keys, not " +
                                std::to_string(problem.seqlen_q) + " and " +
                                std::to_string(problem.seqlen_k));
  }
  const std::int64_t tokens = tokens_of(problem.mask);
  if (tokens == problem.seqlen_k) return;
  throw bad_mask(problem, "must have lengths that sum to seqlen = " + std::to_string(problem.seqlen_k) +
                              ", not to " + std::to_string(tokens));
}

void apply_documents_example(AttentionProblem& problem, TileShape tile) {
  const std::int64_t longest = 2 * std::max(tile.block_m, tile.block_n);
  problem.mask = {MaskKind::documents, {tile.block_n / 2 + 1, 0, longest, 1, tile.block_m}};
  problem.seqlen_q = problem.seqlen_k = tokens_of(problem.mask);
}

}  // namespace

MaskModel documents_mask() {
  return {.kind = MaskKind::documents,
          .name = "documents",
          .form = "documents:N,N,...",
          .summary = "documents of N tokens each side by side, which do not see each other; causal or not",
          .regions = documents_regions,
          .validate = validate_documents,
          .apply_example = apply_documents_example,
          .seqlen = tokens_of};
}

}  // namespace tilescope
