// SPDX-License-Identifier: Apache-2.0
// `tilescope profile -- COMMAND ...`: counters and times of every kernel of a command.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <regex>

#include "analysis/cli/command.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/nearest_names.hpp"
#include "analysis/report_format.hpp"
#include "analysis/run_record.hpp"
#include "profiler/kernel_record.hpp"
#include "profiler/metric_sets.hpp"
#include "profiler/profiled_command.hpp"

namespace tilescope::cli {
namespace {

struct ProfileArguments {
  ProfileRequest request;
  std::vector<std::string> command;
  bool time = false;
  std::int64_t time_limit_s = 0;  // 0: none
};

// Chips to ask about a name before the device is known, the commonest first.
constexpr const char* kLikelyChips[] = {"GH100", "GA100", "GB100", "GB202", "AD102"};

[[noreturn]] void refuse_metric(const UnknownMetric& unknown) {
  std::string nearest;
  for (const std::string& name : nearest_names(unknown.name(), unknown.known())) {
    nearest += (nearest.empty() ? "; did you mean " : ", ") + name;
  }
  throw BadInput("--metrics", unknown.name(),
                 "must be names of `tilescope list counters`, or counters with their rollup" +
                     (nearest.empty() ? "" : nearest + "?"));
}

/// Refuses names that no likely chip has. Where libcupti is missing nobody can tell; the command will say so.
void require_known_metrics(const std::string& metrics) {
  std::optional<UnknownMetric> unknown;
  for (const char* chip : kLikelyChips) {
    try {
      choose_metrics(metrics, MetricCatalogue(chip));
      return;
    } catch (const MachineLacks&) {
      return;
    } catch (const UnknownMetric& error) {
      if (!unknown) unknown = error;
    }
  }
  refuse_metric(*unknown);
}

void require_expression(const std::string& expression) {
  try {
    std::regex{expression};
  } catch (const std::regex_error& error) {
    throw BadInput("--kernel-filter", expression,
                   std::string("must be a regular expression (") + error.what() + ")");
  }
}

CommandOutcome run(const ProfileRequest& request, const ProfileArguments& arguments,
                   const CommandContext& context) {
  CommandOptions options;
  if (arguments.time_limit_s > 0) options.time_limit = std::chrono::seconds(arguments.time_limit_s);
  std::unique_ptr<Progress> progress;
  options.progress = [&](std::int64_t kernels) {
    progress = std::make_unique<Progress>(context, fmt::format("{} kernels measured;", kernels), 0);
  };
  return run_profiled(request, arguments.command, options);
}

/// Launches of one kernel with one geometry.
struct Row {
  std::int64_t launches = 0, timed = 0;
  std::map<std::string, double> sums;
  double time_s = 0;
};

std::string summary(const KernelRecord& record) {
  std::map<std::pair<std::string, std::string>, Row> rows;
  std::vector<std::pair<std::string, std::string>> order;
  for (const KernelMeasurement& kernel : record.kernels) {
    const auto& grid = kernel.launch.grid;
    const std::pair key{kernel.name, fmt::format("{}x{}x{}", grid[0], grid[1], grid[2])};
    if (!rows.count(key)) order.push_back(key);
    Row& row = rows[key];
    ++row.launches;
    for (const auto& [name, value] : kernel.measured) row.sums[name] += value;
    if (kernel.time) row.time_s += kernel.time->median_s(), ++row.timed;
  }
  const std::vector<std::string> bytes = {"sm_l2_read_bytes", "sm_l2_write_bytes", "dram_read_bytes",
                                          "dram_write_bytes"};
  std::vector<std::vector<std::string>> table = {{"launches", "SM<-L2", "SM->L2", "DRAM read", "DRAM write",
                                                  "time", "grid", "kernel (means over its launches)"}};
  for (const auto& key : order) {
    const Row& row = rows[key];
    std::vector<std::string> line = {fmt::format("{}", row.launches)};
    for (const std::string& name : bytes) {
      const auto sum = row.sums.find(name);
      line.push_back(sum == row.sums.end() ? "-"
                                           : format_bytes(sum->second / static_cast<double>(row.launches)));
    }
    line.push_back(row.timed ? format_seconds(row.time_s / static_cast<double>(row.timed)) : "-");
    line.push_back(key.second);
    line.push_back(key.first.substr(0, 80));
    table.push_back(std::move(line));
  }
  return align_columns(table, "", {true, true, true, true, true, true});
}

std::string conclusion(const KernelRecord& record) {
  std::string text;
  for (const CollectionFacts& facts : record.collections) {
    text += fmt::format("{} ({}), {} in {}\n", facts.device, facts.chip, record.metrics,
                        facts.passes == 1 ? "one pass between read sweeps"
                                          : fmt::format("{} passes by kernel replay", facts.passes));
  }
  for (const std::string& message : record.messages) text += "note: " + message + "\n";
  if (!record.complete) text += "note: the record is not complete\n";
  return text;
}

int run_profile(ProfileArguments& arguments, const CommandContext& context) {
  if (arguments.command.empty()) {
    throw BadInput("COMMAND", "(none)", "must follow --, as in: tilescope profile -- python3 script.py");
  }
  require_known_metrics(arguments.request.metrics);
  require_expression(arguments.request.kernel_filter);
  injection_library();  // a build without it cannot profile anything

  KernelRecord record;
  record.argv = context.argv;
  record.when = utc_now();
  record.metrics = arguments.request.metrics;
  const CommandOutcome counted = run(arguments.request, arguments, context);
  record.exit_code = counted.exit_code;
  record.complete = counted.events.unfinished == 0 && !counted.timed_out;
  record.collections = counted.events.collections;
  record.messages = counted.events.messages;
  record.kernels = counted.events.kernels;
  if (counted.timed_out) record.messages.push_back("the command was ended at its time limit");
  if (counted.events.processes == 0) {
    record.messages.push_back("the command used no CUDA: no process of it initialised a driver");
  }
  if (arguments.time && !record.kernels.empty() && !counted.timed_out) {
    ProfileRequest trace = arguments.request;
    trace.what = ProfileRequest::What::trace;
    const CommandOutcome timed = run(trace, arguments, context);
    const std::int64_t alone = join_times(record.kernels, timed.events.kernels);
    record.messages.insert(record.messages.end(), timed.events.messages.begin(), timed.events.messages.end());
    if (alone > 0) {
      record.messages.push_back(
          fmt::format("{} kernels did not come again in the run for their times", alone));
    }
  }
  if (!record.kernels.empty()) context.print(summary(record));
  context.print(conclusion(record));
  context.write_json(to_json_text(record));
  return counted.exit_code;
}

}  // namespace

void add_profile_command(CLI::App& app, CommandContext& context) {
  const auto arguments = std::make_shared<ProfileArguments>();
  ProfileRequest& request = arguments->request;
  CLI::App& command = add_command(app, context, "profile", "counters and times of every kernel of a command",
                                  [arguments, &context] { return run_profile(*arguments, context); });
  command.add_option("--metrics", request.metrics, "sets, metrics and counters, with commas (list counters)")
      ->type_name("NAMES");
  command.add_option("--kernel-filter", request.kernel_filter, "measure kernels whose name it is found in")
      ->type_name("REGEX");
  command.add_option("--skip", request.skip, "matching launches to let pass first")
      ->check(CLI::NonNegativeNumber);
  command.add_option("--count", request.count, "matching launches to measure")->check(CLI::PositiveNumber);
  command.add_flag("--time", arguments->time, "run the command a second time, without counters, for times");
  command.add_option("--time-limit", arguments->time_limit_s, "seconds after which the command is ended")
      ->check(CLI::PositiveNumber);
  command.add_option("command", arguments->command, "what to run, after --")->type_name("-- COMMAND");
  command.footer("Exits as the command does.");
}

}  // namespace tilescope::cli
