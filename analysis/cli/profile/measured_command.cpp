// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "analysis/cli/profile/profile.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/run_record.hpp"
#include "common/nearest_names.hpp"
#include "common/number_format.hpp"
#include "profiler/counters/metric_sets.hpp"
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
    if (std::ranges::find(all, message) == all.end()) all.push_back(message);
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

namespace {

constexpr std::size_t kNameLength = 80;  // of a kernel

std::string how(const CollectionFacts& facts) {
  if (facts.replay != "kernel" && facts.l2 == "warm") {
    return fmt::format(
        "{}, with L2 as the kernels before left it",
        facts.replay == "none" ? "one pass" : fmt::format("{} runs of the command", facts.passes));
  }
  if (facts.replay == "none") return "one pass, between eviction sweeps of L2";
  if (facts.replay == "application") {
    return fmt::format("{} runs of the command, each kernel between eviction sweeps of L2", facts.passes);
  }
  return fmt::format("{} passes by kernel replay", facts.passes);
}

constexpr const char* kTrafficColumns[] = {"sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes",
                                           "dram_write_bytes"};

/// The metrics and counters that were asked for by their own names and have no column.
std::vector<std::string> asked_for(const std::string& metrics) {
  std::vector<std::string> names;
  std::istringstream list(metrics);
  for (std::string name; std::getline(list, name, ',');) {
    const bool set =
        std::ranges::any_of(metric_sets(), [&name](const MetricSet& other) { return other.name == name; });
    const bool column = std::ranges::find(kTrafficColumns, name) != std::end(kTrafficColumns);
    if (!set && !column) names.push_back(name);
  }
  return names;
}

/// Mean over the group's launches; nothing where none has it.
std::optional<double> mean_of(const KernelRecord& record, const KernelGroup& group, const std::string& name) {
  if (const auto metric = group.measured.find(name); metric != group.measured.end()) return metric->second;
  return mean_counter(record.kernels, group, name);
}

}  // namespace

Output kernel_table(const KernelRecord& record) {
  constexpr std::size_t kNameLength = 100;
  std::vector<Row> table = {
      {"kernel", "launches", "SM<-L2", "SM->L2", "DRAM read", "DRAM write", "time", "grid", "block"}};
  const std::vector<std::string> asked = asked_for(record.metrics);
  std::vector<Row> counted = {{"kernel", "asked for", "mean"}};
  for (const KernelGroup& group : group_launches(record.kernels)) {
    Row row = {group.name.substr(0, kNameLength), as_count(group.launches)};
    for (const char* metric : kTrafficColumns) {
      const auto mean = group.measured.find(metric);
      row.push_back(mean == group.measured.end() ? Cell("-") : in_bytes(mean->second));
    }
    const auto seconds = median_seconds(record.kernels, group);
    row.push_back(seconds ? in_seconds(*seconds) : Cell("-"));
    row.push_back(fmt::format("{}", fmt::join(group.launch.grid, "x")));
    row.push_back(fmt::format("{}", fmt::join(group.launch.block, "x")));
    table.push_back(std::move(row));
    for (const std::string& name : asked) {
      const std::optional<double> mean = mean_of(record, group, name);
      counted.push_back({short_kernel_name(group.name).substr(0, 40), name,
                         mean ? as_number(fmt::format("{}", *mean), *mean) : Cell("-")});
    }
  }
  Output output = "Means over a kernel's launches, median time:\n\n";
  output += Table{.rows = table, .layout = Table::Layout::below};
  if (!asked.empty()) output += Output("\n") + Table{counted};
  return output;
}

std::string conclusion(const KernelRecord& record) {
  std::string text;
  for (const CollectionFacts& facts : record.collections) {
    text += fmt::format("{} ({}), {} in {}\n", facts.device, facts.chip, record.metrics, how(facts));
  }
  for (const std::string& message : record.messages) text += "note: " + message + "\n";
  const bool replayed = std::ranges::any_of(
      record.collections, [](const CollectionFacts& facts) { return facts.replay == "kernel"; });
  if (replayed) {
    text +=
        "note: kernel replay leaves its own lines in L2, so DRAM writes are not told and small kernels find "
        "a warm L2; --replay application has neither fault, and runs the command once for each pass\n";
  }
  if (!record.complete) text += "note: the record is not complete\n";
  return text;
}

}  // namespace tilescope::cli
