// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/split_k/split_k.hpp"

#include "gpu/registry/tile_check.hpp"

namespace tilescope {

ProgramOptions SplitK::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(kTile);
  if (problem.masked()) options.order = TileOrder::longest_first;
  return options;
}

std::optional<std::string> SplitK::reason(const AttentionProblem& problem, Direction direction,
                                          const ProgramOptions& options) {
  if (direction == Direction::backward) return "has a forward pass alone";
  if (problem.dtype != ElementType::fp16 && problem.dtype != ElementType::bf16) {
    return "computes fp16 and bf16, not " + std::string(to_string(problem.dtype));
  }
  if (problem.head_dim > kHeadDim) return "computes head_dim 64 and below";
  if (problem.dropout > 0) return "has no dropout";
  return tile_refusal(problem, direction, options, default_options(problem));
}

LaunchShape SplitK::launch_shape(const TileProgram&) {
  return {.threads_per_cta = 32 * kWarps, .shared_bytes = Layout::end(), .ctas_per_sm = kCtasPerSm};
}

}  // namespace tilescope
