// SPDX-License-Identifier: Apache-2.0
// Whether the counters can be believed: kernels that move known bytes, and Nsight Compute on the same
// command.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "analysis/cli/profile/profile.hpp"
#include "analysis/cli/profile/profile_records.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"
#include "common/number_format.hpp"
#include "common/pattern.hpp"
#include "profiler/injection/name_pattern.hpp"
#include "profiler/records/field_schema.hpp"
#include "profiler/records/kernel_record.hpp"
#include "profiler/records/launch_rounds.hpp"
#include "profiler/records/ncu_csv.hpp"

namespace tilescope {

template <typename Fields>
static void list(Fields& fields, Of<Fields, CalibrationCheck>& check) {
  fields.required("kernel", Text{}, check.kernel);
  fields.required("metric", Text{}, check.metric);
  fields.required("declared", kCount, check.declared);
  fields.required("measured", Number{}, check.measured);
  fields.required("deviation", Number{}, check.deviation);
  fields.required("holds", Flag{}, check.holds);
}

}  // namespace tilescope

namespace tilescope::cli {
namespace {

constexpr std::string_view kSelfTestSchema = "tilescope.self-test/1";

struct ComparedColumn {
  const char* title;
  const char* metric;
  const char* counter;  // of ncu, and of a record that has not the metric
  bool bytes;
};

constexpr ComparedColumn kComparedColumns[] = {
    {"SM<-L2", "sm_l2_read_bytes", "l1tex__m_xbar2l1tex_read_bytes.sum", true},
    {"SM->L2", "sm_l2_write_bytes", "l1tex__m_l1tex2xbar_write_bytes.sum", true},
    {"DRAM read", "dram_read_bytes", "dram__bytes_read.sum", true},
    {"instructions", "warp_instructions", "smsp__inst_executed.sum", false},
};

void require_same_launches(const std::vector<LaunchRounds>& ours, const std::vector<LaunchRounds>& ncu) {
  if (ours.size() != ncu.size()) {
    throw BadInput("kernels", fmt::format("{} in the records and {} in the CSV", ours.size(), ncu.size()),
                   "must be of the same command");
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const KernelMeasurement &one = ours[i].first, &other = ncu[i].first;
    if (one.launch.grid == other.launch.grid && one.launch.block == other.launch.block) continue;
    throw BadInput("kernel", fmt::format("{}, {}", i, one.name),
                   "must have the same grid in the CSV: " + other.name);
  }
}

/// The function's own name, without its return type, namespaces and arguments.
std::string short_name(const std::string& name) {
  std::string text = Pattern("^void |\\(anonymous namespace\\)::").replace(name, "");
  text = text.substr(0, text.find_first_of("<("));
  const std::size_t space = text.rfind("::");
  return space == std::string::npos ? text : text.substr(space + 2);
}

std::string format_value(double value, bool bytes) {
  return bytes ? format_bytes(value) : fmt::format("{:.4g}", value);
}

/// " (0.12 %)": from the least to the greatest of several measurements.
std::string format_spread(const Spread& spread) {
  return spread.samples > 1 ? fmt::format(" ({:.2f} %)", 100 * spread.relative()) : "";
}

/// A Markdown table of the kernels that `filter`, a regular expression, is found in: our medians, and in
/// percent of ncu's how far they lie from those. Where a launch was measured more than once, how far its
/// values lie apart stands behind each, in percent of the median.
/// @param ours, ncu the launches of each run, in order; each side's runs may hold several rounds of the same
/// launches
/// @throws BadInput where the two do not hold the same launches in the same order
std::string ncu_comparison(const std::vector<std::vector<KernelMeasurement>>& ours,
                           const std::vector<std::vector<KernelMeasurement>>& ncu,
                           const std::string& filter) {
  const std::vector<LaunchRounds> own = gather_rounds(ours), theirs = gather_rounds(ncu);
  require_same_launches(own, theirs);
  const NamePattern pattern(filter);
  std::string text = "| kernel | grid |", rule = "|---|---|";
  for (const ComparedColumn& column : kComparedColumns) {
    text += fmt::format(" {} | against ncu |", column.title);
    rule += "---:|---:|";
  }
  text += " DRAM write |\n" + rule + "---:|\n";
  std::vector<std::optional<double>> worst(std::size(kComparedColumns));
  for (std::size_t i = 0; i < own.size(); ++i) {
    const KernelMeasurement& kernel = own[i].first;
    if (!pattern.in(kernel.name)) continue;
    const auto& grid = kernel.launch.grid;
    text += fmt::format("| {} | {}x{}x{} |", short_name(kernel.name), grid[0], grid[1], grid[2]);
    for (std::size_t c = 0; c < std::size(kComparedColumns); ++c) {
      const ComparedColumn& column = kComparedColumns[c];
      const auto value = spread_of(own[i], column.metric, column.counter);
      const auto reference = spread_of(theirs[i], column.metric, column.counter);
      if (!value || !reference || reference->median == 0) {
        text += " - | - |";
        continue;
      }
      const double off = value->median / reference->median - 1;
      worst[c] = std::max(worst[c].value_or(0), std::abs(off));
      text += fmt::format(" {}{} | {:+.3f} %{} |", format_value(value->median, column.bytes),
                          format_spread(*value), 100 * off, format_spread(*reference));
    }
    const auto written = spread_of(own[i], "dram_write_bytes", "");
    text += written ? fmt::format(" {} |\n", format_bytes(written->median)) : " - |\n";
  }
  text += "| furthest | |";
  for (const std::optional<double>& off : worst) {
    text += off ? fmt::format(" | {:.3f} % |", 100 * *off) : " | - |";
  }
  return text + " |\n";
}

}  // namespace

struct SelfTestFile {
  std::vector<std::string> argv;
  std::string when;
  SelfTest test;
};

template <typename Fields>
static void list(Fields& fields, const SelfTestFile& file) {
  fields.items("argv", tilescope::Text{}, file.argv);
  fields.required("when", tilescope::Text{}, file.when);
  fields.required("machine", Part<DeviceName>{},
                  DeviceName{file.test.device, file.test.chip, file.test.driver});
  fields.required("passes", kCount, file.test.passes);
  fields.required("tolerance", Positive{}, kSelfTestTolerance);
  fields.items("checks", Part<CalibrationCheck>{}, file.test.checks);
}

int compare_with_ncu(const NcuArguments& arguments, const std::string& filter,
                     const CommandContext& context) {
  if (arguments.records.empty() || arguments.csv.empty()) {
    throw BadInput("--compare and --ncu", "one of them", "must be given together");
  }
  parse_name_pattern("--kernel-filter", filter);
  std::vector<std::vector<KernelMeasurement>> ours, ncu;
  for (const std::string& path : arguments.records) {
    const std::string text = read_text_file(path);
    require_kind(path, parse_json(path, text), {kKernelsSchema});
    ours.push_back(parse_kernel_record(path, text).kernels);
  }
  for (const std::string& path : arguments.csv) ncu.push_back(parse_ncu_csv(path, read_text_file(path)));
  context.print(ncu_comparison(ours, ncu, filter));
  return kFine;
}

Json self_test_schema() { return record_schema<SelfTestFile>(kSelfTestSchema); }

int report_self_test(const SelfTest& test, const CommandContext& context) {
  std::vector<Row> table = {{"kernel", "metric", "declared", "measured", "off by", ""}};
  bool holds = true;
  for (const CalibrationCheck& check : test.checks) {
    holds &= check.holds;
    table.push_back({check.kernel, check.metric,
                     as_number(fmt::format("{}", check.declared), double(check.declared)),
                     as_number(fmt::format("{:.0f}", check.measured), check.measured),
                     as_percent(check.deviation, 3), check.holds ? "" : "FAILS"});
  }
  context.print(Table{table});
  context.print(fmt::format("{} ({}), {} passes; each within {:g} % of the bytes that its kernel moves: {}\n",
                            test.device, test.chip, test.passes, 100 * kSelfTestTolerance,
                            holds ? "yes" : "NO"));
  for (const std::string& kernel : test.left_out)
    context.print("left out, the device is too old: " + kernel + "\n");
  const SelfTestFile file{context.argv, utc_now(), test};
  context.write_json(record_json(kSelfTestSchema, file).dump(1) + "\n");
  return holds ? kFine : kCheckFailed;
}

}  // namespace tilescope::cli
