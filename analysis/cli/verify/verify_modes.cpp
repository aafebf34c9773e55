// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/verify_modes.hpp"

#include <fmt/format.h>

#include <iterator>
#include <memory>

#include "analysis/cli/distributed/distributed_commands.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/cli/verify/verify_gradients.hpp"
#include "analysis/cli/verify/verify_judge.hpp"
#include "analysis/cli/verify/verify_rows.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope::cli {
namespace {

constexpr std::int64_t kMostRows = 65536;

}  // namespace

int verify_rows(const CommandContext& context, const VerifyOptions& options) {
  const std::int64_t rows = parse_integer_in("rows", *options.rows, 1, kMostRows);
  if (options.quick || options.full || options.locate || options.worst || options.repeat || options.inputs) {
    throw BadInput("rows", *options.rows,
                   "must stand without --quick, --full, --locate, --worst, --repeat and --inputs");
  }
  const AttentionProblem problem = options.problem.problem();
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  RunRecord record = start_record(context.argv);
  note_device(record.machine, kernels);
  const bool picks = options.problem.pass_given();
  std::vector<Direction> directions = {Direction::forward, Direction::backward};
  if (picks) directions = options.problem.directions();
  int passed = 0, failed = 0;
  Progress progress(context, "judging rows");
  for (const Kernel* kernel : kernels) {
    const ProgramOptions own = options.kernel.program_options(*kernel, problem);
    for (const Direction direction : directions) {
      const bool wanted = options.kernel.given() && (picks || direction == Direction::forward);
      if (wanted) require_supported(*kernel, problem, direction, own);
      if (kernel->refusal(problem, direction, own)) continue;
      progress.step(fmt::format("of {}, {}", kernel->name, to_string(direction)));
      VerifyOutcome outcome = judge_rows(*kernel, problem, direction, own, rows);
      context.print(outcome.text);
      std::move(outcome.entries.begin(), outcome.entries.end(), std::back_inserter(record.runs));
      passed += outcome.passed;
      failed += outcome.failed;
    }
  }
  context.print(fmt::format("{} of each output, {}: {} passed, {} failed\n",
                            counted(static_cast<std::size_t>(rows), "row"),
                            counted(static_cast<std::size_t>(passed + failed), "run"), passed, failed));
  context.write_json(to_json_text(record));
  return failed == 0 ? kFine : kCheckFailed;
}

int verify_gradients(const CommandContext& context, const VerifyOptions& options) {
  if (options.quick || options.full || options.locate || options.worst || options.repeat || options.rows ||
      options.inputs || options.problem.pass_given()) {
    throw BadInput(
        "--gradients", "given",
        "must stand without --quick, --full, --locate, --worst, --repeat, --rows, --inputs, --pass");
  }
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  RunRecord record = start_record(context.argv);
  note_device(record.machine, kernels);
  const std::vector<AttentionProblem> problems =
      options.problem.given() ? std::vector{options.problem.problem()} : gradient_problems();
  int passed = 0, failed = 0;
  Progress progress(context, "gradients by differences");
  for (const AttentionProblem& problem : problems) {
    for (const Kernel* kernel : kernels) {
      const ProgramOptions own = options.kernel.program_options(*kernel, problem);
      if (options.kernel.given()) require_supported(*kernel, problem, Direction::backward, own);
      if (kernel->refusal(problem, Direction::backward, own)) continue;
      progress.step(fmt::format("{} {}", kernel->name, describe(problem)));
      VerifyOutcome outcome = judge_gradients(*kernel, problem, own);
      context.print(outcome.text);
      std::move(outcome.entries.begin(), outcome.entries.end(), std::back_inserter(record.runs));
      passed += outcome.passed;
      failed += outcome.failed;
    }
  }
  context.print(fmt::format("{}: {} passed, {} failed\n",
                            counted(static_cast<std::size_t>(passed + failed), "run"), passed, failed));
  context.write_json(to_json_text(record));
  return failed == 0 ? kFine : kCheckFailed;
}

int verify_ranks(const CommandContext& context, const VerifyOptions& options) {
  const AttentionProblem problem = options.problem.problem();
  const bool on_devices = options.kernel.kernels({"cpu:flash2"}).front()->name.starts_with("gpu:");
  const std::shared_ptr<ProcessGroup> processes = options.gpus.processes(on_devices);
  const ProgramRunner run = program_runner(options.gpus, processes, options.kernel, problem, "cpu:flash2");
  const VerifyJob job = problem_jobs(options, options.kernel.kernels({"cpu:flash2"})).front();
  require_memory(bytes_needed(job), "verifying " + describe(problem));
  const Progress progress(context, "verifying " + describe(problem));
  return verify_distributed(context_of(context, processes), problem, job.verify_case.direction,
                            job.verify_case.inputs, options.gpus.all(), run);
}

}  // namespace tilescope::cli
