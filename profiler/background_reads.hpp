// SPDX-License-Identifier: Apache-2.0
// What is read from DRAM while nothing runs that reads: others than the work that is measured take part in
// every count of a whole device.
#pragma once

#include <cstdint>
#include <vector>

namespace tilescope {

struct BackgroundReads {
  double seconds = 0;  // that a kernel of one warp slept
  std::int64_t dram_read_bytes = 0;
  bool operator==(const BackgroundReads&) const = default;
};

/// Sleeps of 0.1 ms to 1 s, by ascending length; of each the median of five. Takes some seconds.
/// @throws MachineLacks without a device, or libcupti or the permission to count
std::vector<BackgroundReads> measure_background_reads();

}  // namespace tilescope
