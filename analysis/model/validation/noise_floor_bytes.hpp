// SPDX-License-Identifier: Apache-2.0
// What a device reads from DRAM by itself in any time, from what was measured for some: the floor below which
// a difference between model and counter says nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/calibration/noise_floor.hpp"

namespace tilescope {

/// Most bytes that the device reads by itself in so many seconds under any of the measured loads. Which of
/// them a kernel is most like is not known, and one that nearly fills a part of the L2 has its own lines
/// displaced by what others read: no smaller difference is sure to be the kernel's.
/// Between two measured durations each load's floor lies on the straight line through both; below the
/// shortest it is that of the shortest; above the longest it lies on the line through the last two. Never
/// below 0; 0 where nothing was measured.
/// @param measured of each load by ascending seconds
std::int64_t noise_floor_bytes(const std::vector<NoiseFloor>& measured, double seconds);

/// Loads that were measured, in the order in which they first come.
std::vector<std::string> noise_floor_loads(const std::vector<NoiseFloor>& measured);

/// Cells of a table, the headers first: a row for each duration, a column for each load.
std::vector<std::vector<std::string>> noise_floor_rows(const std::vector<NoiseFloor>& measured);

}  // namespace tilescope
