// SPDX-License-Identifier: Apache-2.0
// Sampled rows of a kernel's results, judged at any length: `verify --rows`, and what `bench` and `profile` do
// before they measure.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "analysis/records/run_record.hpp"
#include "cpu_ref/judge/sampled_rows.hpp"

namespace tilescope::cli {

/// Runs the passes of `direction` (backward: of forward too) once, on the device for a GPU's kernel, and judges
/// `rows` rows of each output. The forward pass of a backward one takes its own tile where it cannot take the
/// options'.
Verdict judge_sampled_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                           const ProgramOptions& options, std::int64_t rows);

/// Rows that are judged before something is measured, or none.
class RowCheck {
 public:
  void add_to(CLI::App& command);
  /// Judges a kernel before it is measured. @return what the record says of it
  /// @throws CheckFailed saying what is wrong
  VerifiedRows check(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                     const ProgramOptions& options) const;

 private:
  bool skipped_ = false;
};

}  // namespace tilescope::cli
