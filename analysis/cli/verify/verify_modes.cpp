// SPDX-License-Identifier: Apache-2.0
// What `verify` does in place of its sweep: sampled rows, gradients, several GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>

#include "analysis/cli/distributed/distributed.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cli/verify/sampled_rows.hpp"
#include "analysis/cli/verify/verify.hpp"
#include "analysis/model/counts/what_ran.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/gradient_check.hpp"

namespace tilescope::cli {
namespace {

/// The problems that are checked where none is named.
std::vector<AttentionProblem> gradient_problems() {
  return {{.heads = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 64},
          {.heads = 2, .heads_kv = 1, .seqlen_q = 33, .seqlen_k = 57, .head_dim = 128, .causal = true}};
}

/// In words and as an entry of the record. Precondition: the kernel refuses neither direction.
VerifyOutcome judge_gradients(const Kernel& kernel, const AttentionProblem& problem,
                              const ProgramOptions& options) {
  VerifyOutcome outcome;
  RunEntry& entry = outcome.entries.emplace_back(entry_of(kernel, problem));
  std::map<std::string, double> shares;
  bool passed = true;
  for (const GradientCheck& check : check_gradients(kernel, problem, options)) {
    const std::string name(to_string(check.gradient));
    entry.gradients.push_back({name, check.by_gradient, check.by_difference, check.bound});
    shares[name] = std::max(shares[name], std::abs(check.difference()) / check.bound);
    if (check.passed()) continue;
    passed = false;
    outcome.text += fmt::format(
        "  {} along a direction: {:.9g} by the gradient, {:.9g} by differences; off by {:.3g}, "
        "at most {:.3g}\n",
        name, check.by_gradient, check.by_difference, std::abs(check.difference()), check.bound);
  }
  std::string figures;
  for (const auto& [name, share] : shares) figures += fmt::format(" {} {:.2f}", name, share);
  outcome.text =
      fmt::format("{} {} {}, by differences:{}\n", passed ? "ok  " : "FAIL",
                  named_with_order(kernel, options, Direction::backward), describe(problem), figures) +
      outcome.text;
  ++(passed ? outcome.passed : outcome.failed);
  return outcome;
}

/// The outcomes of a mode: printed as they come, counted, and recorded in the end.
class Outcomes {
 public:
  Outcomes(const CommandContext& context, const std::vector<const Kernel*>& kernels)
      : context_(context), record_(start_record(context.argv)) {
    note_device(record_.machine, kernels);
  }
  void take(VerifyOutcome outcome) {
    context_.print(outcome.text);
    std::move(outcome.entries.begin(), outcome.entries.end(), std::back_inserter(record_.runs));
    passed_ += outcome.passed;
    failed_ += outcome.failed;
  }
  /// @return the exit code
  int finish(const std::string& of_what) const {
    context_.print(fmt::format("{}{}: {} passed, {} failed\n", of_what, counted(passed_ + failed_, "run"),
                               passed_, failed_));
    context_.write_json(to_json_text(record_));
    return failed_ == 0 ? kFine : kCheckFailed;
  }

 private:
  const CommandContext& context_;
  RunRecord record_;
  int passed_ = 0, failed_ = 0;
};

}  // namespace

int verify_rows(const CommandContext& context, const VerifyOptions& options) {
  constexpr std::int64_t kMostRows = 65536;
  const std::int64_t rows = parse_integer_in("rows", *options.rows, 1, kMostRows);
  if (options.quick || options.full || options.locate || options.worst || options.repeat || options.inputs) {
    throw BadInput("rows", *options.rows,
                   "must stand without --quick, --full, --locate, --worst, --repeat and --inputs");
  }
  const AttentionProblem problem = options.problem.problem();
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  const bool picks = options.problem.pass_given();
  std::vector<Direction> directions = {Direction::forward, Direction::backward};
  if (picks) directions = options.problem.directions();
  Outcomes outcomes(context, kernels);
  Progress progress(context, "judging rows");
  for (const Kernel* kernel : kernels) {
    const ProgramOptions own = options.kernel.program_options(*kernel, problem);
    for (const Direction direction : directions) {
      const bool wanted = options.kernel.given() && (picks || direction == Direction::forward);
      if (wanted) require_supported(*kernel, problem, direction, own);
      if (kernel->refusal(problem, direction, own)) continue;
      progress.step(fmt::format("of {}, {}", kernel->name, to_string(direction)));
      outcomes.take(judge_rows(*kernel, problem, direction, own, rows));
    }
  }
  return outcomes.finish(counted(rows, "row") + " of each output, ");
}

int verify_gradients(const CommandContext& context, const VerifyOptions& options) {
  if (options.quick || options.full || options.locate || options.worst || options.repeat || options.rows ||
      options.inputs || options.problem.pass_given()) {
    throw BadInput(
        "--gradients", "given",
        "must stand without --quick, --full, --locate, --worst, --repeat, --rows, --inputs, --pass");
  }
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  const std::vector<AttentionProblem> problems =
      options.problem.given() ? std::vector{options.problem.problem()} : gradient_problems();
  Outcomes outcomes(context, kernels);
  Progress progress(context, "gradients by differences");
  for (const AttentionProblem& problem : problems) {
    for (const Kernel* kernel : kernels) {
      const ProgramOptions own = options.kernel.program_options(*kernel, problem);
      if (options.kernel.given()) require_supported(*kernel, problem, Direction::backward, own);
      if (kernel->refusal(problem, Direction::backward, own)) continue;
      progress.step(fmt::format("{} {}", kernel->name, describe(problem)));
      outcomes.take(judge_gradients(*kernel, problem, own));
    }
  }
  return outcomes.finish("");
}

int verify_ranks(const CommandContext& context, const VerifyOptions& options) {
  const AttentionProblem problem = options.problem.problem();
  const bool on_devices = options.kernel.kernels({"cpu:flash2"}).front()->on_gpu();
  const std::shared_ptr<ProcessGroup> processes = options.gpus.processes(on_devices);
  const ProgramRunner run = program_runner(options.gpus, processes, options.kernel, problem, "cpu:flash2");
  const VerifyJob job = problem_jobs(options, options.kernel.kernels({"cpu:flash2"})).front();
  require_memory(bytes_needed(job), "verifying " + describe(problem));
  const Progress progress(context, "verifying " + describe(problem));
  return verify_distributed(context_of(context, processes), problem, job.verify_case.direction,
                            job.verify_case.inputs, options.gpus.all(), run);
}

}  // namespace tilescope::cli
