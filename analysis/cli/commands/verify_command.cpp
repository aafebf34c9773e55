// SPDX-License-Identifier: Apache-2.0
// `tilescope verify`: judges kernels against the exact result, and GPU kernels against their CPU mirrors too.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>

#include "analysis/cli/command.hpp"
#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/tables/text_table.hpp"
#include "analysis/cli/tables/worst_cases.hpp"
#include "analysis/cli/verify/verify_judge.hpp"
#include "analysis/cli/verify/verify_modes.hpp"
#include "analysis/cli/verify/verify_options.hpp"
#include "analysis/cli/verify/verify_repeats.hpp"
#include "analysis/records/run_record.hpp"
#include "common/memory_budget.hpp"
#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope::cli {
namespace {

constexpr std::int64_t kMostRepeats = 100000;

/// Judges all jobs and calls take(outcome) for each, in order. The small problems of a sweep keep one thread
/// busy each; a single problem has all threads to itself.
template <typename Judge, typename Take>
void judge_all(const std::vector<VerifyJob>& jobs, Judge&& judge_one, Take&& take) {
  std::exception_ptr failure;
  const auto count = static_cast<std::int64_t>(jobs.size());
#pragma omp parallel for ordered schedule(dynamic, 1) if (count > 1)
  for (std::int64_t i = 0; i < count; ++i) {
    std::exception_ptr own_failure;
    VerifyOutcome outcome;
    try {
      outcome = judge_one(jobs[static_cast<std::size_t>(i)]);
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

std::vector<VerifyJob> planned_jobs(const VerifyOptions& options, const std::vector<const Kernel*>& kernels) {
  if (options.problem.given() || options.problem.pass_given() || options.inputs) {
    return problem_jobs(options, kernels);
  }
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
  {
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
  context.print(fmt::format("{} on {}: {} passed, {} failed{}; {:.1f} s\n",
                            counted(static_cast<std::size_t>(passed + failed), "run"),
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
  command
      .add_option("--repeat", options->repeat,
                  "run each problem so many times and compare the bits (default problems: a few)")
      ->type_name("N");
  command
      .add_option("--rows", options->rows,
                  "judge so many query rows and key rows of one problem, chosen at random: at any length")
      ->type_name("N");
  command.add_flag("--gradients", options->gradients,
                   "gradients against central differences of the kernel's own forward pass (fp32)");
  command.add_option("--inputs", options->inputs, "kind of random inputs, for one problem")
      ->type_name("normal|outlier|equal-rows|huge-scale");
  options->kernel.add_to(command, true);
  options->problem.add_to(command);
  refuse_v_transposed(command);
  options->shard.add_to(command, {"--worst", "--rows", "--gradients"}, context.json);
  options->gpus.add_to(command,
                       {"--backward", "--order", "--scan", "--fp8-sums", "--diagonal-slices", "--quick",
                        "--full", "--locate", "--worst", "--repeat", "--rows", "--gradients", "--shard"},
                       true);
  show_examples(command, {{"verify --quick", "a small sweep over every kernel that can run here"},
                          {"verify --preset small --kernel cpu:flash2 --pass fwd+bwd --locate",
                           "one problem, and the first tile that diverges"},
                          {"verify --gpus 4 --schedule striped --heads 4 --seqlen 1k --causal --pass fwd+bwd",
                           "a schedule for several GPUs, on threads of this CPU"}});
}

}  // namespace tilescope::cli
