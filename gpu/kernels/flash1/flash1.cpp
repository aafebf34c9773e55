// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/flash1.hpp"

#include <iterator>

#include "gpu/kernels/elementwise/elementwise.hpp"

namespace tilescope {

ProgramOptions Flash1::default_options(const AttentionProblem& problem) {
  const PassShapes compiled = shapes(padded_dim(problem.head_dim));
  ProgramOptions options;
  options.set_tile(Direction::forward, compiled.forward);
  options.set_tile(Direction::backward, compiled.backward);
  return options;
}

std::vector<TileShape> Flash1::tile_choices(const AttentionProblem& problem, PassName pass) {
  std::vector<TileShape> tiles = {default_options(problem)[pass].tile};
  const bool plain =
      problem.dropout == 0 && problem.key_lengths.empty() && problem.softmax_scale.value_or(1) > 0;
  if (padded_dim(problem.head_dim) != kTunedDim || problem.dtype == ElementType::bf16 || !plain) return tiles;
  if (pass == PassName::forward)
    tiles.insert(tiles.end(), std::begin(kTunedForward), std::end(kTunedForward));
  if (pass == PassName::dkdvdq)
    tiles.insert(tiles.end(), std::begin(kTunedBackward), std::end(kTunedBackward));
  return tiles;
}

LaunchShape Flash1::launch_shape(const TileProgram& program) {
  const int dim = padded_dim(program.problem.head_dim);
  switch (program.name) {
    case PassName::forward:
      return {kForwardGroups * cuda_cores::kThreads, forward_layout(program.tile, dim).bytes(),
              kForwardCtasPerSm};
    case PassName::dkdvdq:
      return {cuda_cores::kBackwardGroups * cuda_cores::kThreads, backward_layout(program.tile, dim).bytes(),
              cuda_cores::kBackwardCtasPerSm};
    default:
      return {kElementwiseThreads, 0};
  }
}

}  // namespace tilescope
