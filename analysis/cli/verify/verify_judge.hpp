// SPDX-License-Identifier: Apache-2.0
// The judgement of one job of `tilescope verify`: each kernel against the exact result, GPU kernels also
// against their CPU mirrors and against each other.
#pragma once

#include <string>
#include <vector>

#include "analysis/cli/verify/verify_jobs.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope::cli {

/// What came of one job.
struct VerifyOutcome {
  std::string text;  // one line a run; for a failure more
  std::vector<RunEntry> entries;
  int passed = 0, failed = 0, refused = 0;   // runs
  double largest_share_between_kernels = 0;  // of GPU kernels on one problem, over the bound
};

/// @param always_locate  looks for the first divergent tile of right runs too
VerifyOutcome judge(const VerifyJob& job, bool always_locate);

/// "ok   cpu:flash2 split 16x24  B1 H2 N35 D16 fp16 causal, normal: o 0.41 lse 0.20 dq 0.60 ...", each figure
/// the largest of |error| / bound.
std::string case_line(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                      const Verdict& verdict, bool passed);
/// What is wrong with each tensor, one line each.
std::string failure_lines(const AttentionProblem& problem, const Verdict& verdict,
                          const std::string& against);
/// The record calls the output o, as its .npy file is called.
std::string record_name(TensorName tensor);
/// "cpu:flash2 split", or the name alone where there is no choice of orders.
std::string named_with_order(const Kernel& kernel, const ProgramOptions& options, Direction direction);
/// A run's entry of the record, with its errors against the exact result.
RunEntry verdict_entry(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                       const Verdict& verdict);

}  // namespace tilescope::cli
