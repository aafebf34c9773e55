// SPDX-License-Identifier: Apache-2.0
// `bench --tune`: every tile shape that a kernel is compiled for, with the warps and stages that it has for
// it, is timed, and the fastest kept in a file. What cannot be it is left out before that.
#pragma once

#include <string>
#include <vector>

#include "analysis/records/tile_table.hpp"
#include "profiler/benchmarks/attention_benchmarks.hpp"

namespace tilescope::cli {

/// Why a choice is not timed.
enum class PruneReason { larger_than_problem, does_not_fit };
std::string_view to_string(PruneReason reason);

struct PrunedChoice {
  PassChoice choice;
  PruneReason reason = PruneReason::does_not_fit;
  std::string detail;  // "takes 144 KiB of shared memory a CTA ..."
};

/// A pass to be tuned on a problem: one case for each choice.
struct TuningTask {
  PassName pass = PassName::forward;
  std::vector<BenchmarkCase> cases;    // by candidate
  std::vector<PassChoice> candidates;  // the kernel's own choice first
  std::vector<PrunedChoice> pruned;
};

/// The passes of `kernel` that have a choice on `problem`. Choices that do not run on `chip` are pruned, and
/// tiles other than the kernel's own that are larger than the problem: rows beyond it are work for nothing.
std::vector<TuningTask> tuning_tasks(const Kernel& kernel, const AttentionProblem& problem, const Chip& chip);

/// The fastest of a task's choices by the medians of its cases' samples; those without samples are no
/// candidates.
/// @throws MachineLacks if no case has samples
TileChoice choose_tile(const TuningTask& task, const std::vector<std::vector<double>>& samples_s,
                       const std::string& device);

/// One row a choice tried: which it was, its median, and whether it was chosen.
std::string tuning_table(const std::vector<TileChoice>& choices);
/// "12 of 40 choices left out before timing: 8 larger than the problem, 4 do not fit the device".
std::string pruned_text(const std::vector<TuningTask>& tasks);
/// All of them, those left out too, with what became of each.
std::string tuning_csv(const std::vector<TuningTask>& tasks, const std::vector<TileChoice>& choices);

}  // namespace tilescope::cli
