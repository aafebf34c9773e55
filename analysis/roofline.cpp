// SPDX-License-Identifier: Apache-2.0
#include "analysis/roofline.hpp"

#include <limits>

namespace tilescope {

std::string_view to_string(Boundary boundary) { return boundary == Boundary::sm_l2 ? "SM<->L2" : "DRAM"; }

std::optional<double> Roofline::least_seconds(std::int64_t flops) const {
  if (!attainable_flops_per_second) return std::nullopt;
  return static_cast<double>(flops) / *attainable_flops_per_second;
}

Roofline roofline(std::int64_t flops, std::optional<std::int64_t> sm_l2_bytes,
                  std::optional<std::int64_t> dram_bytes, const Machine& machine, ElementType dtype) {
  Roofline result;
  const auto lower_to = [&result](double flops_per_second, std::string limit) {
    if (result.attainable_flops_per_second && *result.attainable_flops_per_second <= flops_per_second) return;
    result.attainable_flops_per_second = flops_per_second;
    result.limit = std::move(limit);
  };
  result.peak_flops_per_second = machine.peak_flops(dtype);
  if (result.peak_flops_per_second) {
    lower_to(*result.peak_flops_per_second, std::string(to_string(dtype)) + " peak");
  }
  const auto add = [&](Boundary boundary, std::optional<std::int64_t> bytes,
                       std::optional<double> bandwidth) {
    if (!bytes) return;
    RooflinePoint point{boundary, std::numeric_limits<double>::infinity(), std::nullopt};
    if (*bytes > 0) {
      point.flops_per_byte = static_cast<double>(flops) / static_cast<double>(*bytes);
      if (bandwidth) point.bandwidth_flops_per_second = point.flops_per_byte * *bandwidth;
    }
    if (point.bandwidth_flops_per_second) {
      lower_to(*point.bandwidth_flops_per_second, std::string(to_string(boundary)) + " bandwidth");
    }
    result.points.push_back(point);
  };
  add(Boundary::sm_l2, sm_l2_bytes,
      machine.l2_bytes_per_second ? std::optional(machine.l2_bytes_per_second->value) : std::nullopt);
  add(Boundary::dram, dram_bytes, machine.dram_bytes_per_second.value);
  return result;
}

}  // namespace tilescope
