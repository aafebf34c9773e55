// SPDX-License-Identifier: Apache-2.0
// How much the L2 keeps of what a kernel goes over again and again, by the way in which it is touched. A chip
// whose L2 is split keeps what SMs of both parts read in both, and what they add to in one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

inline constexpr const char* kReadByAll = "read by all SMs";
inline constexpr const char* kReadByOne = "read by one SM";
inline constexpr const char* kReducedByOne = "reduced by one SM";

struct L2Residency {
  std::string access;  // one of the above
  std::int64_t footprint_bytes = 0;
  double kept = 0;  // share of the footprint that the next pass over it found in L2, 1.0 = 100 %
};

/// Goes over buffers of an eighth of the L2 to twice its size, several times each, and counts what comes from
/// DRAM. @throws MachineLacks without a device, or libcupti or the permission to count
std::vector<L2Residency> measure_l2_residency();

/// The footprint of which half is kept, between two measured ones by a straight line: the capacity that the
/// L2 has for this access. [bytes] 0 where all are kept more, or less
inline std::int64_t half_kept_bytes(const std::vector<L2Residency>& measured, const std::string& access) {
  const L2Residency* before = nullptr;
  for (const L2Residency& point : measured) {
    if (point.access != access) continue;
    if (point.kept < 0.5) {
      if (before == nullptr) return 0;
      const double share = (before->kept - 0.5) / (before->kept - point.kept);
      return before->footprint_bytes +
             static_cast<std::int64_t>(share *
                                       static_cast<double>(point.footprint_bytes - before->footprint_bytes));
    }
    before = &point;
  }
  return 0;
}

}  // namespace tilescope
