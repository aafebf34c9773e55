// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/profile_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "analysis/cli/tables/text_table.hpp"
#include "analysis/records/compare/kernel_group.hpp"
#include "analysis/records/run_record.hpp"
#include "common/number_format.hpp"
#include "profiler/counters/metric_sets.hpp"

namespace tilescope::cli {
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
    const bool set = std::any_of(metric_sets().begin(), metric_sets().end(),
                                 [&name](const MetricSet& other) { return other.name == name; });
    const bool column =
        std::find(std::begin(kTrafficColumns), std::end(kTrafficColumns), name) != std::end(kTrafficColumns);
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

std::string kernel_table(const KernelRecord& record) {
  constexpr std::size_t kNameLength = 100;
  std::vector<std::vector<std::string>> table = {
      {"", "launches", "SM<-L2", "SM->L2", "DRAM read", "DRAM write", "time", "grid", "block"}};
  const std::vector<std::string> asked = asked_for(record.metrics);
  std::vector<std::vector<std::string>> counted = {{"kernel", "asked for", "mean"}};
  for (const KernelGroup& group : group_launches(record.kernels)) {
    std::vector<std::string> row = {group.name.substr(0, kNameLength), std::to_string(group.launches)};
    for (const char* metric : kTrafficColumns) row.push_back(mean_bytes_text(group, metric));
    const auto seconds = median_seconds(record.kernels, group);
    row.push_back(seconds ? format_seconds(*seconds) : "-");
    row.push_back(fmt::format("{}", fmt::join(group.launch.grid, "x")));
    row.push_back(fmt::format("{}", fmt::join(group.launch.block, "x")));
    table.push_back(std::move(row));
    for (const std::string& name : asked) {
      const std::optional<double> mean = mean_of(record, group, name);
      counted.push_back(
          {short_kernel_name(group.name).substr(0, 40), name, mean ? fmt::format("{}", *mean) : "-"});
    }
  }
  const std::string text = "Means over a kernel's launches, median time:\n\n" + align_below(table);
  return asked.empty() ? text : text + "\n" + align_columns(counted, "", {false, false, true});
}

std::string conclusion(const KernelRecord& record) {
  std::string text;
  for (const CollectionFacts& facts : record.collections) {
    text += fmt::format("{} ({}), {} in {}\n", facts.device, facts.chip, record.metrics, how(facts));
  }
  for (const std::string& message : record.messages) text += "note: " + message + "\n";
  const bool replayed = std::any_of(record.collections.begin(), record.collections.end(),
                                    [](const CollectionFacts& facts) { return facts.replay == "kernel"; });
  if (replayed) {
    text +=
        "note: kernel replay leaves its own lines in L2, so DRAM writes are not told and small kernels find "
        "a warm L2; --replay application has neither fault, and runs the command once for each pass\n";
  }
  if (!record.complete) text += "note: the record is not complete\n";
  return text;
}

int report_self_test(const SelfTest& test, const CommandContext& context) {
  std::vector<std::vector<std::string>> table = {{"kernel", "metric", "declared", "measured", "off by", ""}};
  auto checks = nlohmann::ordered_json::array();
  bool holds = true;
  for (const CalibrationCheck& check : test.checks) {
    holds &= check.holds;
    table.push_back({check.kernel, check.metric, fmt::format("{}", check.declared),
                     fmt::format("{:.0f}", check.measured), fmt::format("{:.3f} %", 100 * check.deviation),
                     check.holds ? "" : "FAILS"});
    checks.push_back({{"kernel", check.kernel},
                      {"metric", check.metric},
                      {"declared", check.declared},
                      {"measured", check.measured},
                      {"deviation", check.deviation},
                      {"holds", check.holds}});
  }
  context.print(align_columns(table, "", {false, false, true, true, true}));
  context.print(fmt::format("{} ({}), {} passes; each within {:g} % of the bytes that its kernel moves: {}\n",
                            test.device, test.chip, test.passes, 100 * kSelfTestTolerance,
                            holds ? "yes" : "NO"));
  for (const std::string& kernel : test.left_out)
    context.print("left out, the device is too old: " + kernel + "\n");
  const nlohmann::ordered_json record{
      {"schema", "tilescope.self-test/1"},
      {"argv", context.argv},
      {"when", utc_now()},
      {"machine", {{"name", test.device}, {"chip", test.chip}, {"driver", test.driver}}},
      {"passes", test.passes},
      {"tolerance", kSelfTestTolerance},
      {"checks", checks}};
  context.write_json(record.dump(1) + "\n");
  return holds ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
