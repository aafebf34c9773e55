// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/sampled_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "analysis/cli/text_table.hpp"
#include "analysis/model/counts/tensor_bytes.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/sampled_rows.hpp"
#include "gpu/launch/pass_runner.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

void run_on_cpu(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                const ProgramOptions& forward, const ProgramOptions& options, RowJudge& judge) {
  require_memory(tensor_bytes(kernel, problem, direction, options), "verifying rows of " + describe(problem));
  TensorSet tensors(problem);
  fill_random_inputs(tensors, direction, InputKind::normal);
  const auto read = [&tensors](TensorName name, std::int64_t head) { return copy_head(tensors[name], head); };
  kernel.run(forward, Direction::forward, tensors, nullptr);
  judge.forward(read);
  if (direction == Direction::forward) return;
  kernel.run(options, Direction::backward, tensors, nullptr);
  judge.backward(read);
}

void run_on_gpu(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                const ProgramOptions& forward, const ProgramOptions& options, RowJudge& judge) {
  const auto run = [&](Direction step, const ProgramOptions& own, auto&& judge_step) {
    PassRunner runner(find_gpu_kernel(kernel.name), problem, step, own);
    for (std::size_t i = 0; i < runner.programs().size(); ++i) runner.launch(i, nullptr);
    runner.check();
    judge_step([&runner](TensorName name, std::int64_t head) { return runner.head(name, head); });
  };
  run(Direction::forward, forward, [&judge](const auto& read) { judge.forward(read); });
  if (direction == Direction::forward) return;
  run(Direction::backward, options, [&judge](const auto& read) { judge.backward(read); });
}

/// Runs the passes of `direction` (backward: those of forward before them, in the kernel's own tiles) once on
/// normal random inputs, on the device for a GPU's kernel, and judges `rows` rows of each output.
Verdict judge_sampled_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                           const ProgramOptions& options, std::int64_t rows) {
  RowJudge judge(problem, kernel.algorithm, direction, rows, options.fp8_sums);
  // What a backward pass reads of the forward pass is, bit by bit, what has been judged: PassRunner makes it
  // with the kernel's own tiles, since those of the options may be meant for the backward pass.
  ProgramOptions forward = options;
  if (direction == Direction::backward) forward.passes = kernel.default_options(problem).passes;
  const auto run = kernel.on_gpu() ? run_on_gpu : run_on_cpu;
  run(kernel, problem, direction, forward, options, judge);
  return judge.verdict();
}

}  // namespace

VerifyOutcome judge_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                         const ProgramOptions& options, std::int64_t rows) {
  VerifyCase verify_case;
  verify_case.problem = problem;
  verify_case.direction = direction;
  verify_case.inputs = InputKind::normal;
  const Verdict verdict = judge_sampled_rows(kernel, problem, direction, options, rows);
  VerifyOutcome outcome;
  outcome.text = case_line(verify_case, kernel, options, verdict, verdict.passed()) +
                 failure_lines(problem, verdict, "exact");
  RunEntry& entry = outcome.entries.emplace_back(verdict_entry(verify_case, kernel, options, verdict));
  for (const TensorVerdict& tensor : verdict.tensors) {
    entry.error.at(record_name(tensor.tensor)).share = tensor.share;  // each row has a bound of its own
  }
  ++(verdict.passed() ? outcome.passed : outcome.failed);
  return outcome;
}

namespace {

using Clock = std::chrono::steady_clock;

std::int64_t device_bytes(const RowsJob& job) {
  if (!job.kernel->on_gpu()) return 0;
  return tensor_bytes(*job.kernel, job.problem, job.direction, job.options);
}

bool is_of(const RowsJob& job, const RunEntry& run) {
  return job.kernel->name == run.kernel && job.problem == run.problem;
}

}  // namespace

std::chrono::duration<double> time_to_clear(std::int64_t bytes) {
  constexpr double kBytesPerSecond = 1e11;
  return std::chrono::duration<double>(static_cast<double>(bytes) / kBytesPerSecond);
}

void RowsBefore::add_to(CLI::App& command) {
  command.add_flag(
      "--no-verify", left_out_,
      fmt::format(
          "skip the check before measuring: {} rows of each output of every run against exact attention",
          kRows));
}

bool RowsBefore::judge(const std::vector<RowsJob>& jobs, const CommandContext& context) {
  if (left_out_) {
    context.print("results not judged (--no-verify)\n");
    return true;
  }
  const Clock::time_point start = Clock::now();
  auto cleared = start;  // when the memory that was freed will have been
  std::string failures;
  {
    Progress progress(context, "judging rows", static_cast<std::int64_t>(jobs.size()));
    for (const RowsJob& job : jobs) {
      progress.step(fmt::format("{} {}", job.kernel->name, describe(job.problem)));
      const auto leave_unjudged = [&](const char* why) {
        context.print(wrapped(
            fmt::format("not judged: {} {}: {}", job.kernel->name, describe(job.problem), why), "  "));
        unjudged_.push_back(job);
      };
      try {
        const VerifyOutcome outcome = judge_rows(*job.kernel, job.problem, job.direction, job.options, kRows);
        if (outcome.failed > 0) failures += outcome.text;
        judged_.push_back(job);
      } catch (const MachineLacks& lack) {
        leave_unjudged(lack.what());
      } catch (const BadInput& refusal) {
        leave_unjudged(refusal.what());
      }
      cleared = std::max(cleared, Clock::now()) +
                std::chrono::duration_cast<Clock::duration>(time_to_clear(device_bytes(job)));
    }
  }
  if (!failures.empty()) {
    fmt::print(stderr,
               "{}tilescope: wrong results, nothing was measured; --no-verify measures all the same\n",
               failures);
    return false;
  }
  std::this_thread::sleep_until(cleared);
  const std::chrono::duration<double> elapsed = Clock::now() - start;
  context.print(fmt::format("{} of {} results judged right by {} rows of each output, in {:.1f} s\n\n",
                            judged_.size(), jobs.size(), kRows, elapsed.count()));
  return true;
}

void RowsBefore::note_in(std::vector<RunEntry>& runs) const {
  for (RunEntry& run : runs) {
    const auto has = [&run](const std::vector<RowsJob>& jobs) {
      return std::ranges::any_of(jobs, [&run](const RowsJob& job) { return is_of(job, run); });
    };
    run.verified = has(judged_) && !has(unjudged_) ? kRows : 0;
  }
}

}  // namespace tilescope::cli
