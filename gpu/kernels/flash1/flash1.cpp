// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/flash1.hpp"

#include "gpu/kernels/elementwise/elementwise.hpp"

namespace tilescope {

ProgramOptions Flash1::default_options(const AttentionProblem& problem) {
  const PassShapes compiled = shapes(padded_dim(problem.head_dim));
  ProgramOptions options;
  options.set_tile(Direction::forward, compiled.forward);
  options.set_tile(Direction::backward, compiled.backward);
  return options;
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
