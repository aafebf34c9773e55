// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/flash1.hpp"

#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/registry/tile_check.hpp"

namespace tilescope {

ProgramOptions Flash1::default_options(const AttentionProblem& problem) {
  const PassShapes compiled = shapes(padded_dim(problem.head_dim));
  ProgramOptions options;
  options.forward_tile = compiled.forward;
  options.backward_tile = options.dq_tile = compiled.backward;
  return options;
}

std::optional<std::string> Flash1::reason(const AttentionProblem& problem, Direction direction,
                                          const ProgramOptions& options) {
  if (is_fp8(problem.dtype)) {
    return "computes fp32, fp16 and bf16, not " + std::string(to_string(problem.dtype));
  }
  return tile_refusal(problem, direction, options, default_options(problem));
}

LaunchShape Flash1::launch_shape(const TileProgram& program) {
  const int dim = padded_dim(program.problem.head_dim);
  switch (program.name) {
    case PassName::forward:
      return {kForwardGroups * simt::kThreads, forward_layout(program.tile, dim).bytes(), kForwardCtasPerSm};
    case PassName::dkdvdq:
      return {simt::kBackwardGroups * simt::kThreads, backward_layout(program.tile, dim).bytes(),
              simt::kBackwardCtasPerSm};
    default:
      return {kElementwiseThreads, 0};
  }
}

}  // namespace tilescope
