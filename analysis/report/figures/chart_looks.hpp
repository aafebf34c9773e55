// SPDX-License-Identifier: Apache-2.0
// How kernels and boundaries look in every figure of a report: one colour and shape a kernel, solid lines and
// filled markers at SM<->L2, dashed lines and open markers at DRAM.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/counts/run_summary.hpp"
#include "analysis/report/figures/charts.hpp"
#include "common/number_format.hpp"

namespace tilescope {

/// Hands out looks: the algorithms keep theirs, a second kernel of an algorithm takes the next spare one.
class KernelLooks {
 public:
  Look take(std::optional<Algorithm> algorithm) {
    static const std::vector<Look> own = {{.color = "#3d3d3d", .marker = Marker::circle},
                                          {.color = "#c8640a", .marker = Marker::triangle},
                                          {.color = "#0b62a4", .marker = Marker::square}};
    static const std::vector<Look> spare = {{.color = "#7a3b9a", .marker = Marker::diamond},
                                            {.color = "#2a8f6a", .marker = Marker::pentagon},
                                            {.color = "#8a6d00", .marker = Marker::triangle_down},
                                            {.color = "#a02c50", .marker = Marker::star}};
    if (algorithm) {
      bool& used = used_[static_cast<std::size_t>(*algorithm)];
      if (!used) {
        used = true;
        return own[static_cast<std::size_t>(*algorithm)];
      }
    }
    Look look = spare[next_spare_ % spare.size()];
    if (next_spare_++ >= spare.size()) {  // the colours again
      look.dash = Dash::dotted;
      look.filled = false;
    }
    return look;
  }

 private:
  bool used_[3] = {};
  std::size_t next_spare_ = 0;
};

inline Look at_dram(Look look) {
  look.dash = Dash::dashed;
  look.filled = false;
  return look;
}

inline const Look kFloorLook = {.color = "#222222", .dash = Dash::dash_dotted, .width = 1.5};
inline const Look kBoundLook = {.color = "#222222", .dash = Dash::dotted, .width = 1.8};

/// A logarithmic axis of bytes round all points of `series`.
inline ChartAxis byte_axis(const std::string& label, const std::vector<LineSeries>& series) {
  double low = HUGE_VAL, high = 0;
  for (const LineSeries& line : series) {
    for (const ChartPoint& point : line.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
    }
  }
  low /= 1.6;
  high *= 1.6;
  return {label, logarithmic_ticks(low, high, format_bytes), low, high, true};
}

/// A logarithmic axis with a tick at each of the powers of two (or other values) of `values`.
inline ChartAxis doubling_axis(const std::string& label, std::vector<std::int64_t> values,
                               std::string (*format)(std::int64_t)) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  ChartAxis axis{
      label, {}, static_cast<double>(values.front()) / 1.12, static_cast<double>(values.back()) * 1.12, true};
  constexpr std::size_t kMostLabels = 9;
  const std::size_t stride = (values.size() + kMostLabels - 1) / kMostLabels;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    axis.ticks.emplace_back(format(values[i]), static_cast<double>(values[i]));
  }
  return axis;
}

}  // namespace tilescope
