// SPDX-License-Identifier: Apache-2.0
// simulate --tune-bytes: which tiles, orders and scans move least, at either boundary.
#pragma once

#include <string>
#include <vector>

#include "analysis/cli/simulate/simulate_job.hpp"

namespace tilescope::cli {

/// What was tried: one kernel, one direction, each run with choices of its own.
struct ByteTuning {
  std::vector<RunEntry> front;   // no other run moves less at one boundary and no more at the other
  RunEntry own;                  // the kernel's own choice
  int tried = 0, too_large = 0;  // too large for the shared memory of a CTA
};

/// Replays every tile that the kernel is compiled for (a CPU kernel: powers of two, 32 ... 256), in every
/// order of CTAs and of tiles. @throws BadInput where the kernel refuses the problem
ByteTuning tune_bytes(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                      const ProgramOptions& own, const Machine& machine, const SimulationOptions& how,
                      const CommandContext& context);

/// The front, fewest bytes at SM<->L2 first, and how far the kernel's own choice is from it.
std::string tuning_text(const ByteTuning& tuning, Direction direction);

}  // namespace tilescope::cli
