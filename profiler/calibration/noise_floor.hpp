// SPDX-License-Identifier: Apache-2.0
// What is read from DRAM while nothing runs that has to: others than the work that is measured take part in
// every count of a whole device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

inline constexpr const char* kAsleep = "asleep";              // one warp
inline constexpr const char* kComputing = "computing";        // all SMs, without loads and stores
inline constexpr const char* kWorkingInL2 = "working in L2";  // few CTAs, in two fifths of it

struct NoiseFloor {
  std::string load;  // what the device does meanwhile: one of the above
  double seconds = 0;
  std::int64_t dram_read_bytes = 0;  // less what the load has to read itself
  bool operator==(const NoiseFloor&) const = default;
};

/// Each load for 0.1 ms to 1 s, by ascending length; of each the median of five. Takes some 20 seconds, and
/// two fifths of the L2 of device memory.
/// @throws MachineLacks without a device, that much memory, or libcupti or the permission to count
std::vector<NoiseFloor> measure_noise_floor();

}  // namespace tilescope
