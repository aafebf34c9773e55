// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/ncu_comparison.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <regex>

#include "analysis/report_format.hpp"
#include "cpu_ref/errors.hpp"

namespace tilescope::cli {
namespace {

struct Column {
  const char* title;
  const char* metric;
  const char* counter;  // of ncu, and of a record that has not the metric
  bool bytes;
};

constexpr Column kColumns[] = {
    {"SM<-L2", "sm_l2_read_bytes", "l1tex__m_xbar2l1tex_read_bytes.sum", true},
    {"SM->L2", "sm_l2_write_bytes", "l1tex__m_l1tex2xbar_write_bytes.sum", true},
    {"DRAM read", "dram_read_bytes", "dram__bytes_read.sum", true},
    {"instructions", "warp_instructions", "smsp__inst_executed.sum", false},
};

void require_same_launches(const std::vector<KernelMeasurement>& ours,
                           const std::vector<KernelMeasurement>& ncu) {
  if (ours.size() != ncu.size()) {
    throw BadInput("kernels", fmt::format("{} in the record and {} in the CSV", ours.size(), ncu.size()),
                   "must be of the same command");
  }
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (ours[i].launch.grid == ncu[i].launch.grid && ours[i].launch.block == ncu[i].launch.block) continue;
    throw BadInput("kernel", fmt::format("{}, {}", i, ours[i].name),
                   "must have the same grid in the CSV: " + ncu[i].name);
  }
}

/// The function's own name, without its return type, namespaces and arguments.
std::string short_name(const std::string& name) {
  std::string text = std::regex_replace(name, std::regex("^void |\\(anonymous namespace\\)::"), "");
  text = text.substr(0, text.find_first_of("<("));
  const std::size_t space = text.rfind("::");
  return space == std::string::npos ? text : text.substr(space + 2);
}

std::optional<double> counter(const KernelMeasurement& kernel, const char* name) {
  const auto value = kernel.counters.find(name);
  if (value == kernel.counters.end()) return std::nullopt;
  return value->second;
}

std::optional<double> own_value(const KernelMeasurement& kernel, const Column& column) {
  const auto value = kernel.measured.find(column.metric);
  if (value == kernel.measured.end()) return counter(kernel, column.counter);
  return value->second;
}

std::string format_value(double value, bool bytes) {
  return bytes ? format_bytes(value) : fmt::format("{:.4g}", value);
}

}  // namespace

std::string ncu_comparison(const KernelRecord& record, const std::vector<KernelMeasurement>& ncu,
                           const std::string& filter) {
  require_same_launches(record.kernels, ncu);
  const std::regex expression(filter);
  std::string text = "| kernel | grid |", rule = "|---|---|";
  for (const Column& column : kColumns) {
    text += fmt::format(" {} | against ncu |", column.title);
    rule += "---:|---:|";
  }
  text += " DRAM write |\n" + rule + "---:|\n";
  std::vector<std::optional<double>> worst(std::size(kColumns));
  for (std::size_t i = 0; i < ncu.size(); ++i) {
    const KernelMeasurement& ours = record.kernels[i];
    if (!std::regex_search(ours.name, expression)) continue;
    const auto& grid = ours.launch.grid;
    text += fmt::format("| {} | {}x{}x{} |", short_name(ours.name), grid[0], grid[1], grid[2]);
    for (std::size_t c = 0; c < std::size(kColumns); ++c) {
      const auto value = own_value(ours, kColumns[c]), theirs = counter(ncu[i], kColumns[c].counter);
      if (!value || !theirs || *theirs == 0) {
        text += " - | - |";
        continue;
      }
      const double off = (*value - *theirs) / *theirs;
      worst[c] = std::max(worst[c].value_or(0), std::abs(off));
      text += fmt::format(" {} | {:+.3f} % |", format_value(*value, kColumns[c].bytes), 100 * off);
    }
    const auto written = ours.measured.find("dram_write_bytes");
    text += written == ours.measured.end() ? " - |\n" : fmt::format(" {} |\n", format_bytes(written->second));
  }
  text += "| furthest | |";
  for (const std::optional<double>& off : worst) {
    text += off ? fmt::format(" | {:.3f} % |", 100 * *off) : " | - |";
  }
  return text + " |\n";
}

}  // namespace tilescope::cli
