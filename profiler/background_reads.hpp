// SPDX-License-Identifier: Apache-2.0
// What is read from DRAM while nothing runs that has to: others than the work that is measured take part in
// every count of a whole device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

inline constexpr const char* kAsleep = "asleep";

struct BackgroundReads {
  std::string load;  // what the device does meanwhile: one of the above
  double seconds = 0;
  std::int64_t dram_read_bytes = 0;
  bool operator==(const BackgroundReads&) const = default;
};

/// Sleeps of 0.1 ms to 1 s, by ascending length; of each the median of five. Takes some seconds.
/// @throws MachineLacks without a device, or libcupti or the permission to count
std::vector<BackgroundReads> measure_background_reads();

}  // namespace tilescope
