// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/direction_total.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tilescope {
namespace {

void add(std::int64_t& sum, std::int64_t pass) { sum += pass; }

void add(std::array<std::int64_t, 2>& sum, const std::array<std::int64_t, 2>& pass) {
  for (std::size_t end = 0; end < sum.size(); ++end) sum[end] += pass[end];
}

// Defined below the parts that it adds, and declared above MeasuredBytes, whose members are optional too.
template <typename Part>
void add(std::optional<Part>& sum, const std::optional<Part>& pass);

void add(ClosedFormBytes& sum, const ClosedFormBytes& pass) {
  sum.sm_l2_read_bytes += pass.sm_l2_read_bytes;
  sum.sm_l2_write_bytes += pass.sm_l2_write_bytes;
}

void add(SimulatedBytes& sum, const SimulatedBytes& pass) {
  sum.sm_l2_read_bytes += pass.sm_l2_read_bytes;
  sum.sm_l2_write_bytes += pass.sm_l2_write_bytes;
  sum.dram_read_bytes += pass.dram_read_bytes;
  sum.dram_write_bytes += pass.dram_write_bytes;
  add(sum.dram_read_interval, pass.dram_read_interval);
  add(sum.dram_write_interval, pass.dram_write_interval);
}

void add(MeasuredBytes& sum, const MeasuredBytes& pass) {
  add(sum.sm_l2_read_bytes, pass.sm_l2_read_bytes);
  add(sum.sm_l2_write_bytes, pass.sm_l2_write_bytes);
  add(sum.dram_read_bytes, pass.dram_read_bytes);
  add(sum.dram_write_bytes, pass.dram_write_bytes);
  add(sum.instruction_fetch_bytes, pass.instruction_fetch_bytes);
  // dram_read_range has no sum: the passes need not have read least, or most, in the same run.
}

void add(TimeRecord& sum, const TimeRecord& pass) {
  sum.median_s += pass.median_s;
  sum.min_s += pass.min_s;
}

void add(PredictedTime& sum, const PredictedTime& pass) {
  sum.seconds += pass.seconds;
  for (std::size_t end = 0; end < sum.interval.size(); ++end) sum.interval[end] += pass.interval[end];
}

template <typename Part>
void add(std::optional<Part>& sum, const std::optional<Part>& pass) {
  if (sum && pass) {
    add(*sum, *pass);
  } else {
    sum.reset();
  }
}

/// The point of the largest size that is no larger than `l2_bytes`; below all, that of the smallest.
const L2CurvePoint& point_at(const std::vector<L2CurvePoint>& curve, std::int64_t l2_bytes) {
  auto above =
      std::upper_bound(curve.begin(), curve.end(), l2_bytes,
                       [](std::int64_t size, const L2CurvePoint& point) { return size < point.l2_bytes; });
  if (above != curve.begin()) --above;
  return *above;
}

}  // namespace

std::optional<PassRecord> direction_total(const RunEntry& run, Direction direction) {
  PassRecord total;
  total.direction = direction;
  total.tile = kUnknownTile;
  total.closed_form = ClosedFormBytes{};
  total.simulated = SimulatedBytes{};
  total.simulated->dram_read_interval = total.simulated->dram_write_interval = {0, 0};
  total.measured = MeasuredBytes{0, 0, 0, 0, {}, 0};
  total.time = TimeRecord{};
  total.predicted = PredictedTime{};
  bool any = false;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction) continue;
    total.name += (std::exchange(any, true) ? "+" : "") + pass.name;
    total.executed_flops += pass.executed_flops;
    total.exponentials += pass.exponentials;
    add(total.closed_form, pass.closed_form);
    add(total.simulated, pass.simulated);
    add(total.measured, pass.measured);
    add(total.time, pass.time);
    add(total.predicted, pass.predicted);
  }
  if (!any) return std::nullopt;
  total.flops = useful_flops(run.problem, direction);
  const ReadWriteBytes needed = compulsory_bytes(run.problem, direction);
  if (total.closed_form) {
    total.closed_form->compulsory_read_bytes = needed.read_bytes;
    total.closed_form->compulsory_write_bytes = needed.write_bytes;
  }
  return total;
}

std::map<std::int64_t, ReadWriteBytes> total_l2_curve(const RunEntry& run, Direction direction) {
  std::vector<const std::vector<L2CurvePoint>*> curves;
  std::map<std::int64_t, ReadWriteBytes> total;
  for (const PassRecord& pass : run.passes) {
    if (pass.direction != direction || !pass.simulated || pass.simulated->l2_curve.empty()) continue;
    curves.push_back(&pass.simulated->l2_curve);
    for (const L2CurvePoint& point : *curves.back()) total[point.l2_bytes];
  }
  for (auto& [l2_bytes, dram] : total) {
    for (const std::vector<L2CurvePoint>* curve : curves) {
      const L2CurvePoint& point = point_at(*curve, l2_bytes);
      dram.read_bytes += point.dram_read_bytes;
      dram.write_bytes += point.dram_write_bytes;
    }
  }
  return total;
}

}  // namespace tilescope
