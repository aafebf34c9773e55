// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1_mma/flash1_mma.hpp"

#include <algorithm>

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

ProgramOptions Flash1Mma::default_options(const AttentionProblem& problem) {
  return ProgramOptions::with_tile(mma_forward_shape(mma_head_dim(problem.head_dim)).tile);
}

std::vector<TileShape> Flash1Mma::tile_choices(const AttentionProblem& problem, PassName pass) {
  if (pass != PassName::forward) return {default_options(problem)[pass].tile};
  std::vector<TileShape> tiles;
  for (const MmaForwardShape& shape : choices(mma_head_dim(problem.head_dim))) tiles.push_back(shape.tile);
  return tiles;
}

std::vector<Boxes> Flash1Mma::boxes(const TileProgram& program) {
  if (program.name != PassName::forward) return {};
  using enum TensorName;
  std::vector<Boxes> all = by_copies(program, {q, k, v});
  for (const TensorName numbers : {row_max, row_sum})
    all.push_back({.tensor = numbers, .rows = 4, .panel_bytes = 16, .asked_by = AskedBy::aligned_copies});
  return all;
}

LaunchShape Flash1Mma::launch_shape(const TileProgram& program) {
  if (program.name != PassName::forward) return {kElementwiseThreads, 0};
  const int head_dim = mma_head_dim(program.problem.head_dim);
  const auto all = choices(head_dim);
  const MmaForwardShape shape = all.shapes[std::max(0, all.find(program.tile, {}))];
  return {shape.threads(), layout(shape, head_dim).end(), shape.ctas_per_sm};
}

}  // namespace tilescope
