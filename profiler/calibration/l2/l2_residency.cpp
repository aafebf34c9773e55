// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibration/l2/l2_residency.hpp"

#include <numeric>
#include <random>
#include <utility>

namespace tilescope {

std::vector<std::int64_t> residency_footprints(std::int64_t l2_bytes, std::int64_t grain) {
  constexpr std::int64_t kSteps = 32;  // of which one is the finest
  std::vector<std::int64_t> footprints;
  std::int64_t step = 0;
  for (std::int64_t at = kSteps / 8; at <= 2 * kSteps; at += step) {
    footprints.push_back(l2_bytes / kSteps * at / grain * grain);
    const bool near_onset = at >= kSteps / 4 && at < 3 * kSteps / 4;
    step = near_onset ? 1 : at < kSteps ? 2 : kSteps / 4;
  }
  return footprints;
}

std::vector<std::int32_t> random_places(std::int64_t pieces, std::int64_t places) {
  constexpr std::uint64_t kSeed = 7;
  std::mt19937_64 random(kSeed);
  std::vector<std::int32_t> shuffled(static_cast<std::size_t>(places));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(pieces); ++i) {
    std::swap(shuffled[i], shuffled[i + random() % (shuffled.size() - i)]);
  }
  shuffled.resize(static_cast<std::size_t>(pieces));
  return shuffled;
}

std::int64_t kept_bytes(const std::vector<L2Residency>& measured, const std::string& access, double share) {
  const L2Residency* before = nullptr;
  for (const L2Residency& point : measured) {
    if (point.access != access) continue;
    if (point.kept < share) {
      if (before == nullptr) return 0;
      const double way = (before->kept - share) / (before->kept - point.kept);
      return before->footprint_bytes +
             static_cast<std::int64_t>(way *
                                       static_cast<double>(point.footprint_bytes - before->footprint_bytes));
    }
    before = &point;
  }
  return 0;
}

std::int64_t half_kept_bytes(const std::vector<L2Residency>& measured, const std::string& access) {
  return kept_bytes(measured, access, 0.5);
}

}  // namespace tilescope
