// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/ncu_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>

#include "common/errors.hpp"
#include "common/number_format.hpp"
#include "profiler/injection/name_pattern.hpp"
#include "profiler/records/launch_rounds.hpp"

namespace tilescope::cli {
namespace {

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
  std::string text = std::regex_replace(name, std::regex("^void |\\(anonymous namespace\\)::"), "");
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

}  // namespace

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

}  // namespace tilescope::cli
