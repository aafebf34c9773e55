// SPDX-License-Identifier: Apache-2.0
// What studies of tile programs are made of: the CPU kernels' programs on a machine model, one task each.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "analysis/studies/study.hpp"

namespace tilescope {

inline constexpr Direction kForward[] = {Direction::forward};
inline constexpr Direction kBackward[] = {Direction::backward};
inline constexpr Direction kBoth[] = {Direction::forward, Direction::backward};

const AttentionProblem& preset_problem(std::string_view name);

/// The tile of FlashAttention-2's and cuDNN's forward kernels at head_dim 128. flash1 streams two more
/// tensors, so that only half of its q tile fits a CTA's shared memory; its bytes depend on block_n alone.
TileShape usual_tile(Algorithm algorithm);

/// Collects runs to be simulated.
struct Simulations {
  const Machine& machine;
  bool keep_curves = false;  // DRAM bytes at every L2 size, not only the machine's
  std::vector<StudyTask> tasks = {};

  /// Replayed.
  void add(Algorithm algorithm, const AttentionProblem& problem, std::span<const Direction> directions,
           TileShape tile, BackwardOrder backward = BackwardOrder::fused);
  /// Counted and not replayed. @param slices  parts a side of a tile that the mask cuts
  void count(Algorithm algorithm, const AttentionProblem& problem, std::span<const Direction> directions,
             TileShape tile, int slices = 1);
};

}  // namespace tilescope
