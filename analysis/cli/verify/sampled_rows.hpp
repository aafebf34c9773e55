// SPDX-License-Identifier: Apache-2.0
// Sampled rows of a kernel's results, judged at any length: by `verify --rows`, and before `bench` and
// `profile` measure, since bytes and times of wrong results say nothing.
#pragma once

#include <CLI/App.hpp>
#include <chrono>
#include <cstdint>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/verify/verify.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope::cli {

/// Runs the passes of `direction` (backward: those of forward before them, in the kernel's own tiles) once on
/// normal random inputs, on the device for a GPU's kernel, and judges `rows` rows of each output.
/// In words and as an entry of the record. Precondition: the kernel does not refuse it.
/// @throws MachineLacks where the memory is missing; what running the kernel throws
VerifyOutcome judge_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                         const ProgramOptions& options, std::int64_t rows);

/// What is to be measured: one direction of a kernel on a problem.
struct RowsJob {
  const Kernel* kernel;
  AttentionProblem problem;
  Direction direction;
  ProgramOptions options;
};

/// Sampled rows of all jobs, judged before the first is measured.
class RowsBefore {
 public:
  static constexpr std::int64_t kRows = 16;  // of each output, and as many keys' gradients

  /// --no-verify
  void add_to(CLI::App& command);
  /// Judges every job and prints how many rows passed and how long it took. Afterwards the device's memory is
  /// at rest. A job that there is no memory for stays unjudged, and is named.
  /// @returns false if a row is wrong, which standard error has said: nothing must be measured
  bool judge(const std::vector<RowsJob>& jobs, const CommandContext& context);
  /// Notes in each run how many rows of it were judged; after judge().
  void note_in(std::vector<RunEntry>& runs) const;

 private:
  bool left_out_ = false;
  std::vector<RowsJob> judged_, unjudged_;
};

/// The driver overwrites freed memory in the background, at some 0.4 TB/s on an H200, and what it writes is
/// counted with a kernel's own bytes. How long that may take.
std::chrono::duration<double> time_to_clear(std::int64_t bytes);

}  // namespace tilescope::cli
