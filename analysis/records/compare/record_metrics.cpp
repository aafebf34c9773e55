// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/compare/record_diff.hpp"

#include <array>

namespace tilescope {
namespace {

using Value = std::optional<double>;

template <std::int64_t ClosedFormBytes::*member>
Value closed_form(const PassRecord& pass) {
  return pass.closed_form ? Value(static_cast<double>((*pass.closed_form).*member)) : std::nullopt;
}
template <std::int64_t SimulatedBytes::*member>
Value simulated(const PassRecord& pass) {
  return pass.simulated ? Value(static_cast<double>((*pass.simulated).*member)) : std::nullopt;
}
template <std::optional<std::int64_t> MeasuredBytes::*member>
Value measured(const PassRecord& pass) {
  if (!pass.measured || !((*pass.measured).*member)) return std::nullopt;
  return static_cast<double>(*((*pass.measured).*member));
}
template <std::int64_t PassRecord::*member>
Value count(const PassRecord& pass) {
  return static_cast<double>(pass.*member);
}
Value median_seconds(const PassRecord& pass) { return pass.time ? Value(pass.time->median_s) : std::nullopt; }

/// Sum over the passes of a direction; nothing without passes or where one lacks the metric.
Value total(const RecordMetric& metric, const RunEntry& run, Direction direction) {
  Value sum;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction) continue;
    const Value value = metric.of_pass(pass);
    if (!value) return std::nullopt;
    sum = sum.value_or(0) + *value;
  }
  return sum;
}

}  // namespace

std::span<const RecordMetric> record_metrics() {
  // Formulas and the simulation do not jitter: no increase is small enough to be chance. SM<->L2 counters
  // repeat to a few parts in 10,000, DRAM counters and times depend on what else the machine did.
  constexpr Budget kExact{0, true}, kCounter{0.005, true}, kDram{0.05, true}, kTime{0.10, true};
  using Closed = ClosedFormBytes;
  using Cache = SimulatedBytes;
  using Counter = MeasuredBytes;
  static const std::array all = {
      RecordMetric{"flops", "flops", "FLOP", "matrix products over visible pairs", kExact,
                   count<&PassRecord::flops>, nullptr},
      RecordMetric{"flops", "executed_flops", "FLOP", "matrix products over whole visited tiles", kExact,
                   count<&PassRecord::executed_flops>, nullptr},
      RecordMetric{"closed_form", "sm_l2_read_bytes", "B", "read by the SMs, by formula", kExact,
                   closed_form<&Closed::sm_l2_read_bytes>, nullptr},
      RecordMetric{"closed_form", "sm_l2_write_bytes", "B", "written and reduced by the SMs, by formula",
                   kExact, closed_form<&Closed::sm_l2_write_bytes>, nullptr},
      RecordMetric{"closed_form", "compulsory_read_bytes", "B", "inputs of the passes, each read once",
                   kExact, closed_form<&Closed::compulsory_read_bytes>, nullptr},
      RecordMetric{"closed_form", "compulsory_write_bytes", "B", "outputs of the passes, each written once",
                   kExact, closed_form<&Closed::compulsory_write_bytes>, nullptr},
      RecordMetric{"simulated", "sm_l2_read_bytes", "B", "read by the SMs, replayed", kExact,
                   simulated<&Cache::sm_l2_read_bytes>, nullptr},
      RecordMetric{"simulated", "sm_l2_write_bytes", "B", "written and reduced by the SMs, replayed", kExact,
                   simulated<&Cache::sm_l2_write_bytes>, nullptr},
      RecordMetric{"simulated", "dram_read_bytes", "B", "read past the simulated L2", kExact,
                   simulated<&Cache::dram_read_bytes>, nullptr},
      RecordMetric{"simulated", "dram_write_bytes", "B", "written back from the simulated L2", kExact,
                   simulated<&Cache::dram_write_bytes>, nullptr},
      RecordMetric{"measured", "sm_l2_read_bytes", "B", "read by the SMs, counted by the hardware", kCounter,
                   measured<&Counter::sm_l2_read_bytes>, nullptr},
      RecordMetric{"measured", "sm_l2_write_bytes", "B", "written and reduced by the SMs, counted", kCounter,
                   measured<&Counter::sm_l2_write_bytes>, nullptr},
      RecordMetric{"measured", "dram_read_bytes", "B", "read from DRAM, counted", kDram,
                   measured<&Counter::dram_read_bytes>, nullptr},
      RecordMetric{"measured", "dram_write_bytes", "B", "written to DRAM, counted", kDram,
                   measured<&Counter::dram_write_bytes>, nullptr},
      RecordMetric{"time", "median_s", "s", "median time of the passes, without counters", kTime,
                   median_seconds, nullptr},
      RecordMetric{"error", "max_abs", "", "largest distance from the exact result", kExact, nullptr,
                   [](const TensorErrorRecord& error) { return error.max_abs; }},
      RecordMetric{"error", "rmse", "", "root mean square distance from the exact result", kExact, nullptr,
                   [](const TensorErrorRecord& error) { return error.rmse; }},
      RecordMetric{"error", "non_finite", "elements", "wrong elements that are NaN or infinite", kExact,
                   nullptr,
                   [](const TensorErrorRecord& error) { return static_cast<double>(error.non_finite); }},
  };
  return all;
}

std::vector<MetricValue> metric_values(const RunEntry& run) {
  std::vector<MetricValue> values;
  for (const RecordMetric& metric : record_metrics()) {
    if (metric.of_error != nullptr) {
      for (const auto& [tensor, error] : run.error)
        values.push_back({&metric, tensor, metric.of_error(error)});
      continue;
    }
    for (Direction direction : {Direction::forward, Direction::backward}) {
      const std::optional<double> sum = total(metric, run, direction);
      if (sum) values.push_back({&metric, std::string(to_string(direction)), *sum});
    }
  }
  return values;
}

}  // namespace tilescope
