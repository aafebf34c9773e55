// SPDX-License-Identifier: Apache-2.0
// How kernels and boundaries look in every figure of a report: one colour and shape a kernel, solid lines and
// filled markers at SM<->L2, dashed lines and open markers at DRAM.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/figures/charts.hpp"
#include "common/number_format.hpp"

namespace tilescope {

/// Hands out looks: the algorithms keep theirs, a second kernel of an algorithm takes the next spare one.
class KernelLooks {
 public:
  /// The one that `kernel` was given before, if it was.
  Look take(std::optional<Algorithm> algorithm, const std::string& kernel) {
    const auto known = by_kernel_.find(kernel);
    if (known != by_kernel_.end()) return known->second;
    return by_kernel_[kernel] = take(algorithm);
  }
  /// Those handed out by name.
  const std::map<std::string, Look>& known() const { return by_kernel_; }

  Look take(std::optional<Algorithm> algorithm) {
    static const std::vector<Look> own = {{.color = Color::dark, .marker = Marker::circle},
                                          {.color = Color::vermilion, .marker = Marker::triangle},
                                          {.color = Color::blue, .marker = Marker::square}};
    static const std::vector<Look> spare = {{.color = Color::purple, .marker = Marker::diamond},
                                            {.color = Color::green, .marker = Marker::pentagon},
                                            {.color = Color::amber, .marker = Marker::triangle_down},
                                            {.color = Color::sky, .marker = Marker::star}};
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
  std::map<std::string, Look> by_kernel_;
  bool used_[3] = {};
  std::size_t next_spare_ = 0;
};

inline Look at_dram(Look look) {
  look.dash = Dash::dashed;
  look.filled = false;
  return look;
}

inline const Look kFloorLook = {.dash = Dash::dash_dotted};
inline const Look kBoundLook = {.dash = Dash::dotted};

/// A logarithmic axis of bytes round all points of `series`, of which they are y or x.
inline ChartAxis byte_axis(const std::string& label, const std::vector<LineSeries>& series,
                           double ChartPoint::*bytes = &ChartPoint::y) {
  double low = HUGE_VAL, high = 0;
  for (const LineSeries& line : series) {
    for (const ChartPoint& point : line.points) {
      low = std::min(low, point.*bytes);
      high = std::max(high, point.*bytes);
    }
  }
  low /= 1.6;
  high *= 1.6;
  return {label, logarithmic_ticks(low, high, format_bytes), low, high, true, format_bytes};
}

/// A logarithmic axis with a tick at each of the powers of two (or other values) of `values`.
inline ChartAxis doubling_axis(const std::string& label, std::vector<std::int64_t> values,
                               std::string (*format)(std::int64_t)) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  ChartAxis axis{label,
                 {},
                 static_cast<double>(values.front()) / 1.12,
                 static_cast<double>(values.back()) * 1.12,
                 true,
                 [format](double value) { return format(std::llround(value)); }};
  constexpr std::size_t kMostLabels = 9;
  const std::size_t stride = (values.size() + kMostLabels - 1) / kMostLabels;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    axis.ticks.emplace_back(format(values[i]), static_cast<double>(values[i]));
  }
  return axis;
}

}  // namespace tilescope
