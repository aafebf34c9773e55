// SPDX-License-Identifier: Apache-2.0
// What a device reads from DRAM by itself while a kernel runs, as measured for some durations: the floor
// below which a difference between model and counter says nothing.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tilescope {

/// Seconds, and bytes that the device read from DRAM in that time without being asked; ascending seconds.
using BackgroundReads = std::vector<std::pair<double, std::int64_t>>;

/// Bytes that the device reads by itself in so many seconds: by a straight line between the measured
/// durations, as of the shortest below it, on the line through the last two above the longest. Never below
/// 0; 0 where nothing was measured.
std::int64_t background_bytes(const BackgroundReads& measured, double seconds);

}  // namespace tilescope
