// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/replay_cost.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"

namespace tilescope {

std::int64_t tile_accesses(const TileProgram& program) {
  std::int64_t accesses = 0;
  for (const TensorTraffic& traffic : tensor_traffic(program)) {
    const std::int64_t bytes = traffic.load_bytes + traffic.store_bytes + traffic.reduce_bytes;
    accesses += bytes / std::max<std::int64_t>(1, program.tile_bytes(traffic.tensor));
  }
  return accesses;
}

double replay_seconds(std::span<const PlannedPass> passes, bool l2_curve, bool adrift, bool split_l2) {
  double accesses = 0;
  for (const PlannedPass& pass : passes) accesses += static_cast<double>(tile_accesses(pass.program));
  if (split_l2 && !adrift) accesses *= kLaunchesReplayed;
  return accesses / std::min(l2_curve ? kAccessesPerSecondWithCurve : kAccessesPerSecond,
                             adrift ? kAccessesPerSecondAdrift : kAccessesPerSecond);
}

std::string about_seconds(double seconds) {
  if (seconds < 1) return "less than a second";
  const auto rounded = [](double value) {  // one digit, or two below 20: more would be pretended
    const double step = value < 20 ? 1 : std::pow(10.0, std::floor(std::log10(value)));
    return std::round(value / step) * step;
  };
  if (seconds < 90) return fmt::format("about {:.0f} s", rounded(seconds));
  if (seconds < 2 * 3600) return fmt::format("about {:.0f} min", rounded(seconds / 60));
  return fmt::format("about {:.0f} h", rounded(seconds / 3600));
}

}  // namespace tilescope
