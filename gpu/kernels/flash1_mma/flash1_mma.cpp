// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1_mma/flash1_mma.hpp"

#include "gpu/kernels/elementwise/elementwise.hpp"

namespace tilescope {

ProgramOptions Flash1Mma::default_options(const AttentionProblem& problem) {
  return ProgramOptions::with_tile(mma_forward_shape(mma_head_dim(problem.head_dim)).tile);
}

LaunchShape Flash1Mma::launch_shape(const TileProgram& program) {
  if (program.name != PassName::forward) return {kElementwiseThreads, 0};
  const int head_dim = mma_head_dim(program.problem.head_dim);
  const MmaForwardShape shape = mma_forward_shape(head_dim);
  return {shape.threads(), layout(head_dim).end(), shape.ctas_per_sm};
}

}  // namespace tilescope
