// SPDX-License-Identifier: Apache-2.0
// How long a replay will take: what is announced before long work begins.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "analysis/model/replay/simulate_run.hpp"

namespace tilescope {

/// Replayed by one core of a server of 2024 in a second: over the tasks of the studies block-size, and of
/// passes, which asks for the curve over L2 sizes. Here and nowhere else: measure them again when the replay
/// changes, by the line that `study` ends with. Where CTAs drift apart: forward on an H200, of 16k and 128k
/// keys.
inline constexpr double kAccessesPerSecond = 2.4e7, kAccessesPerSecondWithCurve = 5e6,
                        kAccessesPerSecondAdrift = 4.3e6;

/// Tiles that a pass loads, stores or reduces.
std::int64_t tile_accesses(const TileProgram& program);

/// How long a replay of the passes takes on one core. @param adrift  whether the machine knows how the
/// kernel's CTAs drift apart @param split_l2  whether its L2 is in two partitions: several launches are
/// replayed, of which the rate where CTAs drift apart knows
double replay_seconds(std::span<const PlannedPass> passes, bool l2_curve, bool adrift = false,
                      bool split_l2 = false);

/// "about 40 s", "about 7 min", "less than a second": an estimate, and printed as one.
std::string about_seconds(double seconds);

}  // namespace tilescope
