// SPDX-License-Identifier: Apache-2.0
// `bench --tune`: every tile shape that a kernel is compiled for is timed, and the fastest kept in a file.
#pragma once

#include <string>
#include <vector>

#include "analysis/records/tile_table.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"

namespace tilescope::cli {

/// A pass to be tuned on a problem: one case for each shape.
struct TuningTask {
  PassName pass = PassName::forward;
  std::vector<BenchmarkCase> cases;   // by candidate
  std::vector<TileShape> candidates;  // the kernel's own choice first
  std::vector<TileShape> pruned;      // do not run on the chip
};

/// The passes of `kernel` that have a choice of shapes on `problem`. Shapes that do not run on `chip` are
/// pruned.
std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem, const Chip& chip);

/// The fastest of a task's shapes by the medians of its cases' samples; those without samples are no
/// candidates.
/// @throws MachineLacks if no case has samples
TileChoice choose_tile(const TuningTask& task, const std::vector<std::vector<double>>& samples_s,
                       const std::string& device);

/// One row a shape tried: which it was, its median, and whether it was chosen.
std::string tuning_table(const std::vector<TuningTask>& tasks, const std::vector<TileChoice>& choices);

}  // namespace tilescope::cli
