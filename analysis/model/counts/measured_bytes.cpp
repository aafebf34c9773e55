// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/measured_bytes.hpp"

#include <fmt/format.h>

#include <cmath>

#include "common/number_format.hpp"
#include "profiler/counters/metric_sets.hpp"
#include "profiler/records/launch_rounds.hpp"

namespace tilescope {
namespace {

std::optional<std::int64_t> whole(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  return std::llround(value);
}

}  // namespace

MeasuredBytes measured_bytes(const std::vector<KernelMeasurement>& launches) {
  const KernelMeasurement median = median_of_launches(launches);
  const auto bytes = [&median](const char* metric) {
    const auto value = median.measured.find(metric);
    return value == median.measured.end() ? std::nullopt : whole(value->second);
  };
  MeasuredBytes measured{bytes("sm_l2_read_bytes"), bytes("sm_l2_write_bytes"), bytes("dram_read_bytes"),
                         bytes("dram_write_bytes")};
  measured.instruction_fetch_bytes = bytes("instruction_fetch_bytes");
  if (launches.size() < 2) return measured;
  if (const auto reads = spread_of({median, launches}, "dram_read_bytes", "")) {
    const auto least = whole(reads->min), largest = whole(reads->max);
    if (least && largest) measured.dram_read_range = {*least, *largest};
  }
  return measured;
}

std::optional<std::string> too_few_reads(const RunEntry& run, const PassRecord& pass) {
  constexpr double kLeastShare = 0.99;
  if (!pass.measured || !pass.measured->dram_read_bytes || !pass.closed_form || run.l2 == "warm")
    return std::nullopt;
  const std::int64_t least = pass.measured->dram_read_range ? pass.measured->dram_read_range->front()
                                                            : *pass.measured->dram_read_bytes;
  const std::int64_t must = pass.closed_form->compulsory_read_bytes;
  if (static_cast<double>(least) >= kLeastShare * static_cast<double>(must)) return std::nullopt;
  return fmt::format(
      "{} {}: a launch read {} of the {} that it must; it found the rest in an L2 that was not cold, or the "
      "formula asks for more than the kernel reads",
      run.kernel, pass.name, format_bytes(static_cast<double>(least)),
      format_bytes(static_cast<double>(must)));
}

std::map<std::string, double> pass_metrics(const PassRecord& pass) {
  CounterValues counters;
  for (const auto& [name, value] : pass.counters) {
    counters[name] = std::visit([](auto number) { return static_cast<double>(number); }, value);
  }
  std::map<std::string, double> metrics;
  for (const Metric& metric : all_metrics()) {
    for (const Formula& formula : metric.formulas) {
      const auto value = evaluate(formula, counters);
      if (!value) continue;
      metrics.emplace(metric.name, *value);
      break;
    }
  }
  return metrics;
}

}  // namespace tilescope
