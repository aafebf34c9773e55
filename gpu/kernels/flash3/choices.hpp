// SPDX-License-Identifier: Apache-2.0
// With which tile height, splits and L2 swizzle gpu:flash3 runs a problem: the way that ends first on a
// Hopper chip, by the times of NOTES.md. Plain C++.
#pragma once

#include "cpu_ref/schedule/problem.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"

namespace tilescope {

/// A way to run the forward pass.
struct Flash3ForwardWay {
  Flash3Height height = Flash3Height::whole;
  int splits = 1;
  bool packed = false;  // in 16 bits
};
/// The way that ends first.
Flash3ForwardWay flash3_forward_way(const AttentionProblem& problem);

/// The tile of a height, of whichever type.
TileShape flash3_forward_tile(const AttentionProblem& problem, Flash3Height height);

/// Heads of an L2 swizzle of the forward pass; 1 where there is no mask.
int flash3_forward_swizzle(const AttentionProblem& problem, TileShape tile);
/// Whether packed heads are interleaved: under a mask.
bool flash3_interleaves_heads(const AttentionProblem& problem);

/// A way to run the fused backward pass.
struct Flash3BackwardWay {
  int splits = 1;          // see ProgramOptions::query_splits
  int swizzled_heads = 1;  // of an L2 swizzle
};
/// The splits and the L2 swizzle with which the backward pass ends first, by a hundredth at least. Of many
/// tiles none ends much later; persistent CTAs take one head after the other.
Flash3BackwardWay flash3_backward_way(const AttentionProblem& problem);
/// The same of the ordered pass.
struct Flash3OrderedWay {
  int splits = 1;
  int swizzled_heads = 0;       // 0: CTAs come in the order of the other passes
  bool shortest_first = false;  // see ProgramOptions::ordered_shortest_first
};
Flash3OrderedWay flash3_ordered_way(const AttentionProblem& problem);

/// Whether queries see so few keys, on the mean, that CTAs are persistent for it.
bool flash3_sees_few_keys(const AttentionProblem& problem);
/// Whether the backward pass has persistent CTAs, if each takes one head after the other.
bool flash3_can_persist(const AttentionProblem& problem);

/// The most keys that a query sees, and the most queries that see a key.
struct MostSeen {
  std::int64_t keys, queries;
};
MostSeen most_seen(const AttentionProblem& problem);
/// Whether no key is seen by many more queries than the mean: under a window, but not under a causal mask.
bool flash3_sees_evenly(const AttentionProblem& problem);

}  // namespace tilescope
