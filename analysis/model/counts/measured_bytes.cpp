// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/measured_bytes.hpp"

#include <cmath>

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

}  // namespace tilescope
