// SPDX-License-Identifier: Apache-2.0
// Draft tokens as a tree behind their context (SpecInfer, arXiv:2305.09781, section 4): every query is a
// node, and sees the context, its ancestors and itself.
#include "cpu_ref/schedule/masks/mask_models.hpp"

namespace tilescope {
namespace {

std::vector<MaskRegion> tree_regions(const AttentionProblem& problem, const VisibleBand& band) {
  const std::vector<std::int64_t>& parents = problem.mask.numbers;
  const auto nodes = static_cast<int>(parents.size()), context = static_cast<int>(problem.seqlen_k) - nodes;
  VisibleBand all = band;
  all.left = all.right = kUnbounded;
  std::vector<MaskRegion> regions = {{all, {0, nodes}, {0, context}}};
  for (int query = 0; query < nodes; ++query) {
    for (int node = query + 1; node > 0;
         node = static_cast<int>(parents[static_cast<std::size_t>(node - 1)])) {
      const int key = context + node - 1;
      regions.push_back({all, {query, query + 1}, {key, key + 1}});
    }
  }
  return regions;
}

void validate_tree(const AttentionProblem& problem) {
  const std::vector<std::int64_t>& parents = problem.mask.numbers;
  const auto nodes = static_cast<std::int64_t>(parents.size());
  if (nodes != problem.seqlen_q || nodes > problem.seqlen_k) {
    throw bad_mask(problem, "must have a parent for each query, and as many keys or more: seqlen_q = " +
                                std::to_string(problem.seqlen_q) +
                                ", seqlen_k = " + std::to_string(problem.seqlen_k));
  }
  if (problem.causal || problem.windowed()) {
    throw bad_mask(problem,
                   "must stand without --causal and --window: a node sees its ancestors and no others");
  }
  for (std::int64_t node = 1; node <= nodes; ++node) {
    const std::int64_t parent = parents[static_cast<std::size_t>(node - 1)];
    if (parent < node) continue;
    throw bad_mask(problem, "must name a parent in front of each node, or 0 of a root, not " +
                                std::to_string(parent) + " of node " + std::to_string(node));
  }
}

void apply_tree_example(AttentionProblem& problem, TileShape tile) {
  problem.mask = {MaskKind::tree, {}};
  for (std::int64_t node = 1; node <= tile.block_m + 3; ++node) problem.mask.numbers.push_back(node / 2);
  problem.seqlen_q = tile.block_m + 3;
  problem.seqlen_k = 2 * tile.block_n + problem.seqlen_q - 1;
}

}  // namespace

MaskModel tree_mask() {
  return {
      .kind = MaskKind::tree,
      .name = "tree",
      .form = "tree:N,N,...",
      .summary = "draft tokens behind their context, a query each: by their parents, from 1 on, 0 of a root",
      .regions = tree_regions,
      .validate = validate_tree,
      .apply_example = apply_tree_example};
}

}  // namespace tilescope
