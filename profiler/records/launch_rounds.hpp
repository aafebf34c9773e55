// SPDX-License-Identifier: Apache-2.0
// A command that launches the same kernels round after round, in several runs: what was measured of each
// launch in all of them, for its median and for how far it varies by itself. The median over launches of one
// piece of work of this process, too.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

struct LaunchRounds {
  KernelMeasurement first;
  std::vector<KernelMeasurement> all;  // `first` among them
};

/// Launches by their place in a round, the shortest sequence of geometries and names that a run repeats to
/// its end.
/// @param runs in order of launch
/// @throws BadInput where runs have rounds of other lengths or geometries
std::vector<LaunchRounds> gather_rounds(const std::vector<std::vector<KernelMeasurement>>& runs);

struct Spread {
  double median = 0, min = 0, max = 0;
  std::size_t samples = 0;
  /// From the least to the greatest, in parts of the median.
  double relative() const { return median == 0 ? 0 : (max - min) / median; }
};

/// The spread of a metric, or of a counter where a measurement has not the metric; nothing if one has
/// neither.
std::optional<Spread> spread_of(const LaunchRounds& launch, const std::string& metric,
                                const std::string& counter);

/// The first launch with the median of each counter and each metric. Each is taken by itself: medians are no
/// one launch, a metric of several counters need not be its formula of their medians, and what must add up
/// over one launch may not. Values that are no numbers are left out, unless all are.
/// @param launches of the same work with the same counters, one or more
KernelMeasurement median_of_launches(const std::vector<KernelMeasurement>& launches);

}  // namespace tilescope
