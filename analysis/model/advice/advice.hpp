// SPDX-License-Identifier: Apache-2.0
// Which of a kernel's choices is predicted to be done first: tile, order of CTAs, scan, splits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// The choices of a direction that the kernel does not refuse, its own first: tiles that it is compiled for
/// (a CPU kernel: powers of two, 32 ... 256) in every order of CTAs and of tiles, and CTAs that share a kv
/// tile.
std::vector<ProgramOptions> choices_of(const Kernel& kernel, const AttentionProblem& problem,
                                       Direction direction, const ProgramOptions& own);

/// Whether an SM's shared memory has room for the passes' tiles.
bool fits(const Kernel& kernel, const std::vector<PlannedPass>& passes, const Machine& machine);

/// Least time that the machine's rates allow the direction. [s]
double bound_seconds(const RunEntry& run, Direction direction, const Machine& machine);

struct Advice {
  std::vector<RunEntry> best;  // the best, and the runner-up where there is one
  RunEntry own;
  int tried = 0, replayed = 0;
  bool predicted = false;  // otherwise ranked by bound_seconds(), as the kernel's structure is not known
};

/// Ranks all choices by formula, replays the first of them, and ranks these again.
/// @param before_replay  is told how long one core would take, and how many are replayed side by side
/// @throws BadInput where the kernel refuses the problem
Advice advise(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
              const ProgramOptions& own, const Machine& machine, const SimulationOptions& how,
              const std::function<void(double core_seconds, std::size_t count)>& before_replay = {});

/// K and V of so many key/value heads, and whether the bytes that an L2 keeps of streamed data hold them.
struct KvInL2 {
  /// Of a key/value head, on the mean of batch entries of unequal lengths.
  std::int64_t head_bytes = 0, heads = 0, kept_bytes = 0;
  std::int64_t heads_that_fit() const { return std::min(heads, kept_bytes / head_bytes); }
};
KvInL2 kv_in_l2(const AttentionProblem& problem, std::int64_t kept_bytes);

}  // namespace tilescope
