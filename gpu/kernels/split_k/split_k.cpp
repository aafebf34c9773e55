// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/split_k/split_k.hpp"

#include "gpu/registry/asked_by.hpp"

namespace tilescope {

ProgramOptions SplitK::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(kTile);
  if (problem.masked()) options.order = TileOrder::longest_first;
  return options;
}

std::vector<Boxes> SplitK::boxes(const TileProgram& program) {
  using enum TensorName;
  return by_copies(program, {q, k, v});
}

LaunchShape SplitK::launch_shape(const TileProgram&) {
  return {.threads_per_cta = 32 * kWarps, .shared_bytes = Layout::end(), .ctas_per_sm = kCtasPerSm};
}

}  // namespace tilescope
