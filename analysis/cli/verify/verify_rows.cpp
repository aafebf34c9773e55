// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/verify_rows.hpp"

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

}  // namespace

Verdict judge_sampled_rows(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                           const ProgramOptions& options, std::int64_t rows) {
  RowJudge judge(problem, kernel.algorithm, direction, rows, options.fp8_sums);
  // What a backward pass reads of the forward pass is, bit by bit, what has been judged: PassRunner makes it
  // with the kernel's own tiles, since those of the options may be meant for the backward pass.
  ProgramOptions forward = options;
  if (direction == Direction::backward) forward.passes = kernel.default_options(problem).passes;
  const auto run = kernel.name.starts_with("gpu:") ? run_on_gpu : run_on_cpu;
  run(kernel, problem, direction, forward, options, judge);
  return judge.verdict();
}

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

}  // namespace tilescope::cli
