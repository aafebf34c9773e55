// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/rows_before.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "analysis/cli/verify/verify_rows.hpp"
#include "analysis/model/counts/tensor_bytes.hpp"

namespace tilescope::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::int64_t device_bytes(const RowsJob& job) {
  if (!job.kernel->name.starts_with("gpu:")) return 0;
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
      fmt::format("measure at once; otherwise {} rows of each output are judged first, of every run", kRows));
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
      try {
        const VerifyOutcome outcome = judge_rows(*job.kernel, job.problem, job.direction, job.options, kRows);
        if (outcome.failed > 0) failures += outcome.text;
        judged_.push_back(job);
      } catch (const MachineLacks& lack) {
        context.print(
            fmt::format("not judged: {} {}: {}\n", job.kernel->name, describe(job.problem), lack.what()));
        unjudged_.push_back(job);
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
      return std::any_of(jobs.begin(), jobs.end(), [&run](const RowsJob& job) { return is_of(job, run); });
    };
    run.verified = has(judged_) && !has(unjudged_) ? kRows : 0;
  }
}

}  // namespace tilescope::cli
