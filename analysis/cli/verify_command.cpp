// SPDX-License-Identifier: Apache-2.0
// `tilescope verify`: judges kernels against the exact result, and GPU kernels against their CPU mirrors too.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <memory>

#include "analysis/cli/command.hpp"
#include "analysis/cli/kernel_options.hpp"
#include "analysis/cli/problem_options.hpp"
#include "analysis/memory_budget.hpp"
#include "analysis/run_record.hpp"
#include "analysis/simulate_run.hpp"
#include "cpu_ref/equivalence.hpp"
#include "cpu_ref/locate.hpp"
#include "cpu_ref/verify_cases.hpp"

namespace tilescope::cli {
namespace {

/// The tile of the default sweep on kernels that take any: small, so that few rows make many tiles, and no
/// multiple of a vector.
constexpr TileShape kSweepTile{16, 24};

struct VerifyOptions {
  ProblemOptions problem;
  KernelOptions kernel;
  std::optional<std::string> inputs;
  bool quick = false, full = false, locate = false;
};

/// One problem and the kernels to run on it.
struct Job {
  VerifyCase verify_case;
  std::vector<std::pair<const Kernel*, ProgramOptions>> runs;
};

/// Those named, or all that can run here.
std::vector<const Kernel*> chosen_kernels(const VerifyOptions& options) {
  std::vector<const Kernel*> kernels = options.kernel.kernels({});
  for (const Kernel* kernel : kernels) require_runnable(*kernel);
  if (options.kernel.given()) return kernels;
  for (const Kernel* kernel : all_kernels()) {
    if (is_runnable(*kernel)) kernels.push_back(kernel);
  }
  return kernels;
}

/// The one problem that the options name, on all chosen kernels.
std::vector<Job> jobs_for_problem(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  Job job;
  job.verify_case.problem = options.problem.problem();
  job.verify_case.direction = options.problem.directions().back();
  if (options.inputs) job.verify_case.inputs = parse_input_kind(*options.inputs);
  for (const Kernel* kernel : kernels) {
    const ProgramOptions program_options = options.kernel.program_options(*kernel, job.verify_case.problem);
    if (options.kernel.given()) {
      require_supported(*kernel, job.verify_case.problem, job.verify_case.direction, program_options);
    }
    job.runs.emplace_back(kernel, program_options);
  }
  return {job};
}

/// Adds the cases of one tile shape on the kernels that are to be judged with it.
void add_sweep(std::vector<Job>& jobs, TileShape tile, SweepSize size,
               const std::vector<const Kernel*>& kernels) {
  for (const VerifyCase& verify_case : verify_cases(tile, size)) {
    Job job{verify_case, {}};
    for (const Kernel* kernel : kernels) {
      ProgramOptions options = case_options(verify_case, *kernel);
      for (BackwardOrder order : backward_orders(verify_case, *kernel)) {
        options.backward = order;
        job.runs.emplace_back(kernel, options);
      }
    }
    jobs.push_back(std::move(job));
  }
}

/// Every kernel on the small tile, if it takes it, and on the tile that it would choose itself.
std::vector<Job> jobs_for_sweep(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  const SweepSize size = options.quick  ? SweepSize::quick
                         : options.full ? SweepSize::full
                                        : SweepSize::normal;
  const AttentionProblem probe{.seqlen_q = kSweepTile.block_m, .seqlen_k = kSweepTile.block_n};
  std::vector<const Kernel*> small;
  std::map<std::pair<int, int>, std::vector<const Kernel*>> by_small_then_own[2];
  for (const Kernel* kernel : kernels) {
    const ProgramOptions own = kernel->default_options(probe);
    ProgramOptions with_small = own;
    with_small.forward_tile = with_small.backward_tile = with_small.dq_tile = kSweepTile;
    const bool takes_small = !kernel->refusal(probe, Direction::forward, with_small);
    if (takes_small) small.push_back(kernel);
    by_small_then_own[takes_small][{own.forward_tile.block_m, own.forward_tile.block_n}].push_back(kernel);
  }
  std::vector<Job> jobs;
  if (!small.empty()) add_sweep(jobs, kSweepTile, size, small);
  for (const bool takes_small : {false, true}) {
    for (const auto& [tile, own_kernels] : by_small_then_own[takes_small]) {
      add_sweep(jobs, {tile.first, tile.second}, takes_small ? SweepSize::quick : size, own_kernels);
    }
  }
  return jobs;
}

/// The record calls the output o, as its .npy file is called.
std::string record_name(TensorName tensor) {
  return tensor == TensorName::out ? "o" : std::string(to_string(tensor));
}

/// "ok   cpu:flash2 split 16x24  B1 H2 N35 D16 fp16 causal, normal: o 0.41 lse 0.20 dq 0.60 ...", each figure
/// max|error| / bound.
std::string case_line(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                      const Verdict& verdict) {
  std::string name(kernel.name);
  if (verify_case.direction == Direction::backward && !kernel.backward_orders.empty()) {
    name += fmt::format(" {}", to_string(options.backward));
  }
  std::string line = fmt::format("{} {:<18} {}x{} {}, {}:", verdict.passed() ? "ok  " : "FAIL", name,
                                 options.forward_tile.block_m, options.forward_tile.block_n,
                                 describe(verify_case.problem), to_string(verify_case.inputs));
  for (const TensorVerdict& tensor : verdict.tensors) {
    const double share = tensor.error.max_abs == 0 ? 0.0 : tensor.error.max_abs / tensor.bound;
    const std::string figure = share < 100 ? fmt::format("{:.2f}", share) : fmt::format("{:.0e}", share);
    line += fmt::format(" {} {}", record_name(tensor.tensor),
                        tensor.error.non_finite > 0 ? "non-finite" : figure);
  }
  return line + "\n";
}

/// What is wrong with each tensor, one line each.
std::string failure_lines(const AttentionProblem& problem, const Verdict& verdict,
                          const std::string& against) {
  std::string lines;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (tensor.passed) continue;
    const TensorExtent extent = tensor_extent(problem, tensor.tensor);
    const std::string where =
        describe_index({extent.batch, extent.heads, extent.rows, extent.cols}, tensor.error.worst_index);
    lines += fmt::format(
        "       {}: {} is {:.9g}, {} {:.9g}; max error {:.3g}, bound {:.3g}, rmse {:.3g}, {} ulp, {} of {} "
        "non-finite\n",
        record_name(tensor.tensor), where, tensor.error.worst_actual, against, tensor.error.worst_expected,
        tensor.error.max_abs, tensor.bound, tensor.error.rmse, tensor.error.max_ulp, tensor.error.non_finite,
        tensor.error.elements);
  }
  return lines;
}

RunEntry record_entry(const VerifyCase& verify_case, const Kernel& kernel, const ProgramOptions& options,
                      const Verdict& verdict) {
  RunEntry entry;
  entry.problem = verify_case.problem;
  entry.kernel = kernel.name;
  entry.order = options.order;
  entry.scan = options.scan;
  entry.inputs = verify_case.inputs;
  for (Direction direction : {Direction::forward, Direction::backward}) {
    if (direction == Direction::backward && verify_case.direction == Direction::forward) break;
    for (const TileProgram& program : kernel.programs(direction, verify_case.problem, options)) {
      entry.passes.push_back(counted_pass(direction, program));
    }
  }
  for (const TensorVerdict& tensor : verdict.tensors) {
    entry.error[record_name(tensor.tensor)] = {.max_abs = tensor.error.max_abs,
                                               .rmse = tensor.error.rmse,
                                               .max_ulp = static_cast<double>(tensor.error.max_ulp),
                                               .non_finite = tensor.error.non_finite,
                                               .bound = tensor.bound};
  }
  return entry;
}

/// The CPU kernel that a GPU kernel mirrors: that of the same algorithm. None for a CPU kernel.
const Kernel* mirror_of(const Kernel& kernel) {
  if (kernel.name.starts_with("cpu:")) return nullptr;
  for (const Kernel& mirror : cpu_kernels()) {
    if (mirror.algorithm == kernel.algorithm) return &mirror;
  }
  return nullptr;
}

/// What came of one job.
struct Outcome {
  std::string text;
  std::vector<RunEntry> entries;
  int passed = 0, failed = 0, refused = 0;
};

void judge_run(const VerifyCase& verify_case, Reference& reference, const Kernel& kernel,
               const ProgramOptions& program_options, bool always_locate, Outcome& outcome) {
  const Verdict verdict = reference.judge(kernel, program_options, verify_case.direction);
  outcome.text += case_line(verify_case, kernel, program_options, verdict);
  outcome.text += failure_lines(verify_case.problem, verdict, "exact");
  outcome.entries.push_back(record_entry(verify_case, kernel, program_options, verdict));
  bool passed = verdict.passed();
  if (const Kernel* mirror = mirror_of(kernel)) {
    const TensorSet outputs = reference.take_outputs();
    reference.run(*mirror, program_options, verify_case.direction);
    const Verdict beside = judge_mirror(reference, outputs, reference.tensors(), verify_case.direction);
    outcome.text += failure_lines(verify_case.problem, beside, std::string(mirror->name));
    passed = passed && beside.passed();
  }
  if (!passed || always_locate) {
    const auto where = locate(reference, kernel, program_options, verify_case.direction);
    outcome.text += fmt::format("       first divergence: {}\n", where.value_or("none, every tile is right"));
  }
  ++(passed ? outcome.passed : outcome.failed);
}

Outcome judge(const Job& job, bool always_locate) {
  const AttentionProblem& problem = job.verify_case.problem;
  Reference reference(problem, job.verify_case.inputs, job.verify_case.direction);
  Outcome outcome;
  for (const auto& [kernel, program_options] : job.runs) {
    VerifyCase verify_case = job.verify_case;
    if (kernel->refusal(problem, Direction::forward, program_options)) {
      ++outcome.refused;
      continue;
    }
    if (kernel->refusal(problem, Direction::backward, program_options)) {
      verify_case.direction = Direction::forward;
    }
    judge_run(verify_case, reference, *kernel, program_options, always_locate, outcome);
  }
  return outcome;
}

/// Judges all jobs and calls take(outcome) for each, in order. The small problems of a sweep keep one thread
/// busy each; a single problem, or one on a GPU, has all threads to itself.
template <typename Take>
void judge_all(const std::vector<Job>& jobs, bool always_locate, Take&& take) {
  const bool on_cpu = std::all_of(jobs.begin(), jobs.end(), [](const Job& job) {
    return std::all_of(job.runs.begin(), job.runs.end(),
                       [](const auto& run) { return run.first->name.starts_with("cpu:"); });
  });
  std::exception_ptr failure;
  const auto count = static_cast<std::int64_t>(jobs.size());
#pragma omp parallel for ordered schedule(dynamic, 1) if (on_cpu && count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    std::exception_ptr own_failure;
    Outcome outcome;
    try {
      outcome = judge(jobs[static_cast<std::size_t>(i)], always_locate);
    } catch (...) {
      own_failure = std::current_exception();
    }
#pragma omp ordered
    {
      if (!failure) failure = own_failure;
      if (!failure) take(outcome);
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// Memory of the reference and of the largest kernel's tensors. [bytes]
std::int64_t bytes_needed(const Job& job) {
  const AttentionProblem& p = job.verify_case.problem;
  std::vector<TileProgram> programs;
  const auto add = [&](const Kernel& kernel, const ProgramOptions& options) {
    for (Direction direction : {Direction::forward, job.verify_case.direction}) {
      for (TileProgram& program : kernel.programs(direction, p, options))
        programs.push_back(std::move(program));
    }
  };
  add(standard_kernel(), standard_kernel().default_options(p));
  for (const auto& [kernel, options] : job.runs) add(*kernel, options);
  constexpr std::int64_t kFp64Copies = 2;  // inputs and results of the exact reference
  const std::int64_t rows = p.batch * (p.heads * p.seqlen_q + p.heads_kv * p.seqlen_k);
  return tensor_bytes(programs) + kFp64Copies * 2 * rows * p.head_dim * 8;
}

int verify(const CommandContext& context, const VerifyOptions& options) {
  if (options.quick && options.full) throw BadInput("--quick and --full exclude each other");
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  const bool one_problem = options.problem.given() || options.problem.pass_given() || options.inputs;
  const std::vector<Job> jobs =
      one_problem ? jobs_for_problem(options, kernels) : jobs_for_sweep(options, kernels);
  for (const Job& job : jobs) {
    require_memory(bytes_needed(job), "verifying " + describe(job.verify_case.problem));
  }
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  int passed = 0, failed = 0, refused = 0;
  {
    Progress progress(context, "verify", static_cast<std::int64_t>(jobs.size()));
    judge_all(jobs, options.locate, [&](Outcome& outcome) {
      context.print(outcome.text);
      std::move(outcome.entries.begin(), outcome.entries.end(), std::back_inserter(record.runs));
      passed += outcome.passed;
      failed += outcome.failed;
      refused += outcome.refused;
      progress.step();
    });
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string not_supported =
      refused == 0 ? "" : fmt::format(", {} not supported by their kernel", refused);
  context.print(fmt::format("{} runs on {} problem{}: {} passed, {} failed{}; {:.1f} s\n", passed + failed,
                            jobs.size(), jobs.size() == 1 ? "" : "s", passed, failed, not_supported,
                            elapsed.count()));
  context.write_json(to_json_text(record));
  return failed == 0 ? kFine : kCheckFailed;
}

}  // namespace

void add_verify_command(CLI::App& app, CommandContext& context) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App& command =
      add_command(app, context, "verify", "kernels against the exact result; a sweep, or one problem",
                  [&context, options] { return verify(context, *options); });
  command.add_flag("--quick", options->quick, "a small part of the sweep");
  command.add_flag("--full", options->full, "the sweep with every element type at every length");
  command.add_flag("--locate", options->locate, "look for the first divergent tile of every case");
  command.add_option("--inputs", options->inputs, "kind of random inputs, for one problem")
      ->type_name("normal|outlier|equal-rows|huge-scale");
  options->kernel.add_to(command, true);
  options->problem.add_to(command);
}

}  // namespace tilescope::cli
