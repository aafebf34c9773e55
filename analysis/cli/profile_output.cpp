// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/profile_output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "analysis/cli/text_table.hpp"
#include "analysis/report_format.hpp"
#include "analysis/run_record.hpp"

namespace tilescope::cli {
namespace {

/// Launches of one kernel with one geometry.
struct Row {
  std::int64_t launches = 0, timed = 0;
  std::map<std::string, double> sums;
  double time_s = 0;
};

std::string how(const CollectionFacts& facts) {
  if (facts.replay != "kernel" && facts.l2 == "warm") {
    return fmt::format(
        "{}, with L2 as the kernels before left it",
        facts.replay == "none" ? "one pass" : fmt::format("{} runs of the command", facts.passes));
  }
  if (facts.replay == "none") return "one pass, between read sweeps of L2";
  if (facts.replay == "application") {
    return fmt::format("{} runs of the command, each kernel between read sweeps of L2", facts.passes);
  }
  return fmt::format("{} passes by kernel replay", facts.passes);
}

}  // namespace

std::string kernel_table(const KernelRecord& record) {
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
    text += fmt::format("{} ({}), {} in {}\n", facts.device, facts.chip, record.metrics, how(facts));
  }
  for (const std::string& message : record.messages) text += "note: " + message + "\n";
  const bool replayed = std::any_of(record.collections.begin(), record.collections.end(),
                                    [](const CollectionFacts& facts) { return facts.replay == "kernel"; });
  if (replayed) {
    text +=
        "note: kernel replay leaves its own lines in L2, so DRAM writes are not told and small kernels find "
        "a warm "
        "L2; --replay application has neither fault, and runs the command once for each pass\n";
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
