// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/profile/measured_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "analysis/records/run_record.hpp"
#include "common/nearest_names.hpp"
#include "profiler/driver/shared_object.hpp"
#include "profiler/injection/name_pattern.hpp"
#include "profiler/injection/profiled_command.hpp"

namespace tilescope::cli {
namespace {

CommandOutcome run(const ProfileRequest& request, const CommandToMeasure& command,
                   const CommandContext& context) {
  CommandOptions options;
  if (command.time_limit_s > 0) options.time_limit = std::chrono::seconds(command.time_limit_s);
  options.output_to_stderr = context.json == "-";  // where the record goes nothing else may
  return run_profiled(request, command.words, options);
}

/// Runs the command once more and adds what that run says to `record`.
void add_run(KernelRecord& record, const ProfileRequest& request, const CommandToMeasure& command,
             const CommandContext& context) {
  const CommandOutcome again = run(request, command, context);
  const std::int64_t alone = join_runs(record.kernels, again.events.kernels);
  for (const std::string& message : again.events.messages) {
    auto& all = record.messages;
    if (std::find(all.begin(), all.end(), message) == all.end()) all.push_back(message);
  }
  record.complete &= again.events.unfinished == 0 && !again.timed_out;
  if (alone > 0) {
    record.messages.push_back(
        fmt::format("{} kernels of the first run did not come again in another", alone));
  }
}

/// What went otherwise than the command's user may think, of its first run.
std::vector<std::string> messages_of(const CommandOutcome& outcome, std::int64_t time_limit_s) {
  std::vector<std::string> messages = outcome.events.messages;
  if (outcome.timed_out) {
    messages.push_back(
        fmt::format("the command and all that it started were ended at the time limit of {} s; --timeout N "
                    "allows N s, 0 any time",
                    time_limit_s));
  } else if (outcome.signal != 0) {
    messages.push_back(
        fmt::format("the command was ended by signal {} ({})", outcome.signal, strsignal(outcome.signal)));
  }
  if (outcome.events.unfinished > 0) {
    messages.push_back(fmt::format(
        "{} of {} processes that used CUDA broke off or lost counters: what they measured before is kept",
        outcome.events.unfinished, outcome.events.processes));
  }
  if (outcome.events.processes == 0) {
    messages.push_back(
        "the command used no CUDA, or cleared its environment: the driver loaded nothing of ours into it");
  }
  return messages;
}

KernelRecord record_of(const CommandOutcome& outcome, const CommandToMeasure& command,
                       const CommandContext& context) {
  KernelRecord record;
  record.argv = context.argv;
  record.when = utc_now();
  record.metrics = command.request.metrics;
  record.exit_code = outcome.exit_code;
  record.complete = outcome.events.unfinished == 0 && !outcome.timed_out;
  record.collections = outcome.events.collections;
  record.messages = messages_of(outcome, command.time_limit_s);
  record.kernels = outcome.events.kernels;
  return record;
}

void require_driver(const std::vector<std::string>& words) {
  std::string why;
  if (SharedObject::open("libcuda.so.1", &why)) return;
  throw MachineLacks(fmt::format(
      "no NVIDIA driver on this machine ({}), so that no kernel of {} could be counted: it was not "
      "run. Start tilescope where the command's kernels run, as in: srun tilescope profile -- {}",
      why, words.front(), fmt::join(words, " ")));
}

}  // namespace

void require_countable(const CommandToMeasure& command) {
  parse_name_pattern("--kernel-filter", command.request.kernel_filter);
  parse_name_pattern("--nvtx", command.request.nvtx_filter);
  if (command.time && !command.request.nvtx_filter.empty()) {
    throw BadInput("--time", "given",
                   "must stand without --nvtx: a trace does not tell the ranges of its kernels");
  }
  if (command.replay != kApplication && command.replay != "kernel") {
    throw unknown_name("--replay", command.replay, {"kernel", kApplication});
  }
  injection_library();  // a build without it cannot profile anything
  require_driver(command.words);
}

KernelRecord measure(const CommandToMeasure& command, const CommandContext& context) {
  ProfileRequest request = command.request;
  if (command.replay == kApplication) request.part = 0;
  const CommandOutcome first = run(request, command, context);
  KernelRecord record = record_of(first, command, context);
  if (record.kernels.empty() || first.timed_out) return record;
  int parts = 1;
  for (const CollectionFacts& facts : record.collections) {
    if (facts.replay == kApplication) parts = std::max(parts, facts.passes);
  }
  for (request.part = 1; request.part < parts; ++request.part) add_run(record, request, command, context);
  if (command.time) {
    request.what = ProfileRequest::What::trace;
    add_run(record, request, command, context);
  }
  return record;
}

}  // namespace tilescope::cli
