// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/mask_allows.hpp"

namespace tilescope {
namespace {

std::size_t document_of(const std::vector<std::int64_t>& lengths, std::int64_t token) {
  std::size_t document = 0;
  while (token >= lengths[document]) token -= lengths[document++];
  return document;
}

}  // namespace

bool mask_allows(const AttentionProblem& problem, std::int64_t batch_head, std::int64_t query,
                 std::int64_t key) {
  const auto batch = static_cast<std::size_t>(batch_head / problem.heads);
  if (!problem.key_lengths.empty() && key >= problem.key_lengths[batch]) return false;
  const std::int64_t diagonal = query + problem.seqlen_k - problem.seqlen_q;
  const bool too_late = (problem.causal && key > diagonal) ||
                        (problem.window_right >= 0 && key > diagonal + problem.window_right);
  const bool too_early = problem.window_left >= 0 && key < diagonal - problem.window_left;
  const bool in_band = !too_late && !too_early;
  const std::vector<std::int64_t>& numbers = problem.mask.numbers;
  switch (problem.mask.kind) {
    case MaskKind::none:
      return in_band;
    case MaskKind::sink:
      return in_band || (!too_late && key < numbers[0]);
    case MaskKind::prefix:
      return in_band || key < numbers[0];
    case MaskKind::documents:
      return in_band && document_of(numbers, query) == document_of(numbers, key);
  }
  return false;
}

}  // namespace tilescope
