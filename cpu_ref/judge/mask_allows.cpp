// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/mask_allows.hpp"

namespace tilescope {
namespace {

std::size_t document_of(const std::vector<std::int64_t>& lengths, std::int64_t token) {
  std::size_t document = 0;
  while (token >= lengths[document]) token -= lengths[document++];
  return document;
}

/// Whether the list of a block of queries has a block of keys. The lists stand behind the rows of a block.
bool lists_block(const std::vector<std::int64_t>& numbers, std::int64_t query, std::int64_t key) {
  std::int64_t rows_to_skip = query / numbers[0] + 1;
  for (std::size_t i = 1; i < numbers.size() && rows_to_skip >= 0; ++i) {
    if (numbers[i] == kNextRow) --rows_to_skip;
    if (numbers[i] == key / numbers[0] && rows_to_skip == 0) return true;
  }
  return false;
}

/// Whether a node, counted from 1, is another or one of its ancestors.
bool descends_from(const std::vector<std::int64_t>& parents, std::int64_t node, std::int64_t ancestor) {
  while (node > ancestor) node = parents[static_cast<std::size_t>(node - 1)];
  return node == ancestor;
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
    case MaskKind::blocks:
      return in_band && lists_block(numbers, query, key);
    case MaskKind::tree: {
      const std::int64_t context = problem.seqlen_k - problem.seqlen_q;
      return key < context || descends_from(numbers, query + 1, key - context + 1);
    }
    case MaskKind::block_causal:
      return in_band && diagonal >= 0 && key / numbers[0] <= diagonal / numbers[0];
  }
  return false;
}

}  // namespace tilescope
