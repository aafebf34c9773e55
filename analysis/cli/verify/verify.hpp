// SPDX-License-Identifier: Apache-2.0
// What `tilescope verify` is told, the problems that it judges, and the judgement of one.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/kernel_options.hpp"
#include "analysis/cli/options/problem_options.hpp"
#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/verify_cases.hpp"

namespace tilescope::cli {

/// As typed. Must outlive the parsing.
struct VerifyOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  GpuOptions gpus;
  Shard shard;
  std::optional<std::string> inputs;
  std::optional<std::string> repeat, rows;
  bool quick = false, full = false, locate = false, worst = false, verbose = false, gradients = false;
};

/// One problem and the kernels to run on it.
struct VerifyJob {
  VerifyCase verify_case;
  std::vector<std::pair<const Kernel*, ProgramOptions>> runs;
};

/// Every kernel on the sweep of verify_cases(): those that take any tile with a small one, so that few rows
/// make many tiles; those with tiles of their own on lengths round all of these, at every head size whose
/// tiles differ.
std::vector<VerifyJob> sweep_jobs(const std::vector<const Kernel*>& kernels, SweepSize size);

/// Problems to be run again and again: each element type and mask, several CTAs for each row that is reduced
/// into.
std::vector<VerifyJob> repeat_jobs(const std::vector<const Kernel*>& kernels);

/// Those named, or all that can run here.
std::vector<const Kernel*> chosen_kernels(const VerifyOptions& options);
/// The one problem that the options name, on all chosen kernels.
std::vector<VerifyJob> problem_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels);
/// The device in a record of kernels that run on it.
void note_device(MachineInfo& machine, const std::vector<const Kernel*>& kernels);
/// Memory of the reference and of the largest kernel's tensors. [bytes]
std::int64_t bytes_needed(const VerifyJob& job);

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

/// Runs every kernel of the job `runs` times. A run fails if the first result is wrong, or a later one
/// differs in a tensor that has an order of sums.
VerifyOutcome judge_repeats(const VerifyJob& job, int runs);

/// --rows: one problem, on the kernels named or on all that take it here; without --pass in each direction
/// that a kernel has.
int verify_rows(const CommandContext& context, const VerifyOptions& options);
/// --gradients: one problem, or a few small ones, on the kernels named or on all that take them here.
int verify_gradients(const CommandContext& context, const VerifyOptions& options);
/// --gpus: ranks that are threads here, whose launches run a CPU kernel, or GPUs.
int verify_ranks(const CommandContext& context, const VerifyOptions& options);

}  // namespace tilescope::cli
