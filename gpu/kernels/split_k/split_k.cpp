// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/split_k/split_k.hpp"

namespace tilescope {

ProgramOptions SplitK::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(kTile);
  if (problem.masked()) options.order = TileOrder::longest_first;
  return options;
}

LaunchShape SplitK::launch_shape(const TileProgram&) {
  return {.threads_per_cta = 32 * kWarps, .shared_bytes = Layout::end(), .ctas_per_sm = kCtasPerSm};
}

}  // namespace tilescope
