// SPDX-License-Identifier: Apache-2.0
// How units overlap that several workers use in turn.
#pragma once

#include <vector>

namespace tilescope {

/// How often a worker out of `workers` makes a step, per clock and all of them together, where each step asks
/// every unit for so many clocks, one unit after the other, waits where others are before it, and takes
/// `apart` for itself. One worker takes the sum of all; many take what the busiest unit needs. Source: mean
/// value analysis of a closed queueing network (Reiser and Lavenberg, JACM 27, 1980).
/// @param clocks  of a step, on each unit; not all 0
double steps_per_clock(const std::vector<double>& clocks, double apart, int workers);

}  // namespace tilescope
