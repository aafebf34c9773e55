// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/validation/noise_floor_bytes.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// @param measured of one load, at least one
std::int64_t bytes_of_load(const std::vector<NoiseFloor>& measured, double seconds) {
  if (measured.size() == 1 || seconds <= measured.front().seconds) return measured.front().dram_read_bytes;
  auto later = std::upper_bound(measured.begin() + 1, measured.end(), seconds,
                                [](double wanted, const NoiseFloor& one) { return wanted < one.seconds; });
  if (later == measured.end()) --later;
  const NoiseFloor& earlier = *(later - 1);
  if (later->seconds <= earlier.seconds) return later->dram_read_bytes;  // measured twice: no line
  const double slope = static_cast<double>(later->dram_read_bytes - earlier.dram_read_bytes) /
                       (later->seconds - earlier.seconds);
  const double bytes = static_cast<double>(earlier.dram_read_bytes) + slope * (seconds - earlier.seconds);
  return std::llround(bytes);
}

}  // namespace

std::int64_t noise_floor_bytes(const std::vector<NoiseFloor>& measured, double seconds) {
  std::map<std::string, std::vector<NoiseFloor>> by_load;
  for (const NoiseFloor& reads : measured) by_load[reads.load].push_back(reads);
  std::int64_t most = 0;
  for (const auto& [load, reads] : by_load) most = std::max(most, bytes_of_load(reads, seconds));
  return most;
}

std::vector<std::string> noise_floor_loads(const std::vector<NoiseFloor>& measured) {
  std::vector<std::string> loads;
  for (const NoiseFloor& reads : measured) {
    if (std::ranges::find(loads, reads.load) == loads.end()) loads.push_back(reads.load);
  }
  return loads;
}

std::vector<std::vector<std::string>> noise_floor_rows(const std::vector<NoiseFloor>& measured) {
  const std::vector<std::string> loads = noise_floor_loads(measured);
  std::map<double, std::map<std::string, std::int64_t>> bytes;
  for (const NoiseFloor& reads : measured) bytes[reads.seconds][reads.load] = reads.dram_read_bytes;
  std::vector<std::vector<std::string>> rows = {{"for"}};
  rows.front().insert(rows.front().end(), loads.begin(), loads.end());
  for (const auto& [seconds, by_load] : bytes) {
    rows.push_back({format_seconds(seconds)});
    for (const std::string& load : loads) {
      const auto found = by_load.find(load);
      rows.back().push_back(found == by_load.end() ? "-" : format_bytes(static_cast<double>(found->second)));
    }
  }
  return rows;
}

}  // namespace tilescope
