// SPDX-License-Identifier: Apache-2.0
// `tilescope verify`: judges kernels against the exact result, and GPU kernels against their CPU mirrors too.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>

#include "analysis/cli/command.hpp"
#include "analysis/cli/expected_time.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/cli/verify/verify.hpp"
#include "analysis/model/counts/tensor_bytes.hpp"
#include "analysis/records/run_record.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/equivalence.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {

std::vector<const Kernel*> chosen_kernels(const VerifyOptions& options) {
  std::vector<const Kernel*> kernels = options.kernel.kernels({});
  for (const Kernel* kernel : kernels) require_runnable(*kernel);
  if (options.kernel.given()) return kernels;
  for (const Kernel* kernel : all_kernels()) {
    if (is_runnable(*kernel)) kernels.push_back(kernel);
  }
  return kernels;
}

std::vector<VerifyJob> problem_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  VerifyJob job;
  job.verify_case.problem = options.problem.problem();
  job.verify_case.direction = options.problem.directions().back();
  require_direction(job.verify_case.problem, job.verify_case.direction);
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

std::int64_t bytes_needed(const VerifyJob& job) {
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

namespace {

using Errors = std::map<std::string, TensorErrorRecord>;

/// Above 1: the tensor fails.
double share(const TensorErrorRecord& error) {
  if (error.non_finite > 0) return std::numeric_limits<double>::infinity();
  const double of_max = error.share.value_or(error.max_abs == 0 ? 0.0 : error.max_abs / error.bound);
  if (!error.rmse_bound || error.rmse == 0) return of_max;
  return std::max(of_max, error.rmse / *error.rmse_bound);
}

double largest_share(const RunEntry& run) {
  double largest = 0;
  for (const Errors* errors : {&run.error, &run.mirror_error}) {
    for (const auto& [tensor, error] : *errors) largest = std::max(largest, share(error));
  }
  return largest;
}

/// What stays apart.
auto group_of(const RunEntry& run) {
  const AttentionProblem& p = run.problem;
  std::string passes;
  for (const PassRecord& pass : run.passes) passes += pass.name + " ";
  return std::tuple(run.kernel, passes, p.dtype, p.causal, p.windowed(), p.mask.kind, !p.key_lengths.empty(),
                    p.group_size(), p.dropout > 0);
}

void take_larger(Errors& into, const Errors& from) {
  for (const auto& [tensor, error] : from) {
    const auto found = into.find(tensor);
    if (found == into.end() || share(error) > share(found->second)) into[tensor] = error;
  }
}

/// One entry for each kernel with its passes, element type, mask, head grouping, and dropout or none: that of
/// the largest share of a bound. Its `cases` and `failed` count what it stands for, and its errors are by
/// tensor those of the largest share among them.
std::vector<RunEntry> worst_cases(std::vector<RunEntry> runs) {
  std::map<decltype(group_of(runs.front())), RunEntry> worst;
  for (RunEntry& run : runs) {
    const std::int64_t failed = largest_share(run) <= 1.0 ? 0 : 1;
    const auto [found, is_new] = worst.try_emplace(group_of(run), run);
    RunEntry& group = found->second;
    if (is_new) {
      group.cases = 1;
      group.failed = failed;
      continue;
    }
    const std::int64_t cases = *group.cases + 1, failures = *group.failed + failed;
    Errors errors = group.error, mirror_errors = group.mirror_error;
    take_larger(errors, run.error);
    take_larger(mirror_errors, run.mirror_error);
    if (largest_share(run) > largest_share(group)) group = std::move(run);
    group.error = std::move(errors);
    group.mirror_error = std::move(mirror_errors);
    group.cases = cases;
    group.failed = failures;
  }
  std::vector<RunEntry> entries;
  for (auto& [group, entry] : worst) entries.push_back(std::move(entry));
  return entries;
}

constexpr std::int64_t kMostRepeats = 100000;

/// Judges all jobs and calls take(outcome) for each, in order. The small problems of a sweep keep one thread
/// busy each; a single problem has all threads to itself.
template <typename Judge, typename Take>
void judge_all(const std::vector<VerifyJob>& jobs, Judge&& judge_one, Take&& take) {
  std::exception_ptr failure;
  std::atomic<bool> failed = false;  // the jobs that are left are not judged
  const auto count = static_cast<std::int64_t>(jobs.size());
#pragma omp parallel for ordered schedule(dynamic, 1) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    std::exception_ptr own_failure;
    VerifyOutcome outcome;
    try {
      if (!failed) outcome = judge_one(jobs[static_cast<std::size_t>(i)]);
    } catch (...) {
      own_failure = std::current_exception();
    }
#pragma omp ordered
    try {
      if (!failure && own_failure) std::rethrow_exception(own_failure);
      if (!failure) take(outcome);
    } catch (...) {
      failure = std::current_exception();
      failed = true;
    }
  }
  if (failure) std::rethrow_exception(failure);
}

/// "fp32 0.21 / 0.80": how near the kernels came to what their mirrors allow, by element type.
class MirrorShares {
 public:
  void add(const RunEntry& entry) {
    for (const auto& [tensor, error] : entry.mirror_error) {
      Share& share = shares_[entry.problem.dtype];
      share.max_abs = std::max(share.max_abs, *error.share);
      if (error.rmse > 0) share.rmse = std::max(share.rmse, error.rmse / *error.rmse_bound);
    }
  }
  std::string text() const {
    if (shares_.empty()) return "";
    std::string text = "against the CPU mirrors, largest error / bound and RMSE / bound:";
    for (const auto& [dtype, share] : shares_) {
      text += fmt::format(" {} {:.2f} {:.2f}", to_string(dtype), share.max_abs, share.rmse);
    }
    return text + "\n";
  }

 private:
  struct Share {
    double max_abs = 0, rmse = 0;
  };
  std::map<ElementType, Share> shares_;
};

/// The text without the lines of runs that passed: those of a sweep are hundreds.
std::string without_passed(const std::string& text) {
  std::string kept;
  bool passed = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(' ')) passed = line.starts_with("ok ");
    if (!passed) kept += line + "\n";
  }
  return kept;
}

/// Shares of the time that jobs take: reference and kernels take what grows as the scores do.
std::vector<double> work_of(const std::vector<VerifyJob>& jobs) {
  constexpr double kAnyProblem = 1e4;  // even an empty one
  std::vector<double> work;
  for (const VerifyJob& job : jobs) {
    const AttentionProblem& p = job.verify_case.problem;
    const auto scores = static_cast<double>(p.batch * p.heads * p.seqlen_q * p.seqlen_k);
    work.push_back((kAnyProblem + scores) * static_cast<double>(1 + job.runs.size()));
  }
  return work;
}

bool names_one_problem(const VerifyOptions& options) {
  return options.problem.given() || options.problem.pass_given() || options.inputs;
}

std::vector<VerifyJob> planned_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  if (names_one_problem(options)) return problem_jobs(options, kernels);
  if (options.repeat) return repeat_jobs(kernels);
  return sweep_jobs(kernels, options.quick  ? SweepSize::quick
                             : options.full ? SweepSize::full
                                            : SweepSize::normal);
}

int verify(const CommandContext& context, const VerifyOptions& options) {
  if (options.gradients) return verify_gradients(context, options);
  options.gpus.require_complete();
  if (options.gpus.given()) return verify_ranks(context, options);
  if (options.rows) return verify_rows(context, options);
  if (options.quick && options.full) throw BadInput("--quick and --full exclude each other");
  if (names_one_problem(options) && (options.quick || options.full)) {
    throw BadInput(options.quick ? "--quick" : "--full", "given",
                   "must stand without options of one problem: it chooses how large the sweep is");
  }
  const std::int64_t repeat =
      options.repeat ? parse_integer_in("repeat", *options.repeat, 2, kMostRepeats) : 0;
  const std::vector<const Kernel*> kernels = chosen_kernels(options);
  std::vector<VerifyJob> jobs = planned_jobs(options, kernels);
  const std::vector<double> alike(jobs.size(), 1.0);  // small problems of every kind stand side by side
  jobs = options.shard.part_of(std::move(jobs), alike);
  for (const VerifyJob& job : jobs) {
    require_memory(bytes_needed(job), "verifying " + describe(job.verify_case.problem));
  }
  const auto start = std::chrono::steady_clock::now();
  RunRecord record = start_record(context.argv);
  record.shard = options.shard.name();
  note_device(record.machine, kernels);
  MirrorShares mirror_shares;
  const bool every_line = options.verbose || options.locate || jobs.size() == 1;
  int passed = 0, failed = 0, refused = 0;
  double share_between_kernels = 0;
  if (jobs.size() == 1 && !options.repeat) {
    VerifyJob small = jobs.front();
    context.print(announcement("verify", small.verify_case.problem, small.verify_case.direction,
                               [&small](const AttentionProblem& problem) {
                                 small.verify_case.problem = problem;
                                 judge(small, false);
                               }));
  }
  {
    TimeOfParts sweep_time(context, "verify", work_of(jobs));
    Progress progress(context, "verify", static_cast<std::int64_t>(jobs.size()));
    const auto judge_one = [&](const VerifyJob& job) {
      return options.repeat ? judge_repeats(job, static_cast<int>(repeat)) : judge(job, options.locate);
    };
    judge_all(jobs, judge_one, [&](VerifyOutcome& outcome) {
      context.print(every_line ? outcome.text : without_passed(outcome.text));
      for (const RunEntry& entry : outcome.entries) mirror_shares.add(entry);
      std::move(outcome.entries.begin(), outcome.entries.end(), std::back_inserter(record.runs));
      passed += outcome.passed;
      failed += outcome.failed;
      refused += outcome.refused;
      share_between_kernels = std::max(share_between_kernels, outcome.largest_share_between_kernels);
      progress.step();
      sweep_time.step();
    });
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  context.print(mirror_shares.text());
  if (share_between_kernels > 0) {
    context.print(fmt::format("GPU kernels differ by at most {:.2f} of the bound from each other\n",
                              share_between_kernels));
  }
  const std::string not_supported =
      refused == 0 ? "" : fmt::format(", {} not supported by their kernel", refused);
  context.print(fmt::format("{} on {}: {} passed, {} failed{}; {:.1f} s\n", counted(passed + failed, "run"),
                            counted(jobs.size(), "problem"), passed, failed, not_supported, elapsed.count()));
  if (options.worst) record.runs = worst_cases(std::move(record.runs));
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
  command.add_flag("-v,--verbose", options->verbose, "a line for every run, not only for those that fail");
  command.add_flag("--worst", options->worst,
                   "record the worst cases only, one for each kernel, element type, mask and head grouping");
  add_value(command, "--repeat", options->repeat, "N",
            "run each problem so many times and compare the bits (default problems: a few)");
  add_value(command, "--rows", options->rows, "N",
            "judge only so many query and key rows of one problem, drawn at random, so that any length is "
            "possible");
  command.add_flag("--gradients", options->gradients,
                   "gradients against central differences of the kernel's own forward pass (fp32)");
  add_value(command, "--inputs", options->inputs, "normal|outlier|equal-rows|huge-scale",
            "kind of random inputs, for one problem");
  options->kernel.add_to(command, true);
  options->problem.add_to(command);
  refuse_v_transposed(command);
  options->shard.add_to(command, {"--worst", "--rows", "--gradients"}, context.json);
  options->gpus.add_to(command,
                       {"--backward", "--order", "--scan", "--fp8-sums", "--variant", "--diagonal-slices",
                        "--splits", "--pack-gqa", "--query-splits", "--quick", "--full", "--locate",
                        "--worst", "--repeat", "--rows", "--gradients", "--shard"},
                       true);
  show_examples(command, {{"verify --quick", "a small sweep over every kernel that can run here"},
                          {"verify --preset small --kernel cpu:flash2 --pass fwd+bwd --locate",
                           "one problem, and the first tile that diverges"},
                          {"verify --gpus 4 --schedule striped --heads 4 --seqlen 1k --causal --pass fwd+bwd",
                           "a schedule for several GPUs, on threads of this CPU"}});
}

}  // namespace tilescope::cli
