// SPDX-License-Identifier: Apache-2.0
// What a device reads from DRAM by itself in any time, from what was measured for some: the floor below which
// a difference between model and counter says nothing.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/background_reads.hpp"

namespace tilescope {

/// Bytes that the device reads by itself in so many seconds: by a straight line between the measured
/// durations, as of the shortest below it, on the line through the last two above the longest. Never below
/// 0; 0 where nothing was measured. @param measured by ascending seconds
std::int64_t background_bytes(const std::vector<BackgroundReads>& measured, double seconds);

}  // namespace tilescope
