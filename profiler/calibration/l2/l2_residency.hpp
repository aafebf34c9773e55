// SPDX-License-Identifier: Apache-2.0
// How much the L2 keeps of what a kernel goes over again and again, by the way in which it is touched. A chip
// whose L2 is split keeps what SMs of both partitions read in both, and what they add to in one; of what the
// SMs of one partition read, that partition keeps a copy of the lines that have their home in the other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

inline constexpr const char* kReadByAll = "read by all SMs";
inline constexpr const char* kReadByOne = "read by one SM";
inline constexpr const char* kReducedByOne = "reduced by one SM";
inline constexpr const char* kReadByPartition = "read by the SMs of one partition";
inline constexpr const char* kReadRandom = "pieces at random places read by all SMs";

struct L2Residency {
  std::string access;  // one of the above
  std::int64_t footprint_bytes = 0;
  double kept = 0;  // share of the footprint that the next pass over it found in L2, 1.0 = 100 %
};

/// An eighth of the L2 to twice its size: by sixteenths, from a quarter to three quarters of it, where the
/// onset of misses lies, by half of that, and beyond it by quarters. Multiples of `grain`. [bytes]
std::vector<std::int64_t> residency_footprints(std::int64_t l2_bytes, std::int64_t grain);

/// `pieces` different numbers below `places`, in an order of chance that is the same each time: what lies at
/// these places fills the sets of a cache unevenly, as buffers of a program do that were not allocated as
/// one.
std::vector<std::int32_t> random_places(std::int64_t pieces, std::int64_t places);

/// The footprint of which `share` is kept, between two measured ones by a straight line. [bytes] 0 where all
/// are kept more, or less, or none was measured
std::int64_t kept_bytes(const std::vector<L2Residency>& measured, const std::string& access, double share);

/// The capacity that the L2 has for this access: kept_bytes() of one half.
std::int64_t half_kept_bytes(const std::vector<L2Residency>& measured, const std::string& access);

}  // namespace tilescope
