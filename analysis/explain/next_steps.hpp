// SPDX-License-Identifier: Apache-2.0
// What would make a kernel move less: other tiles, no spills, whole sectors, another order of CTAs. Each is
// tried, on the closed form, the counters or a replay, before it is said.
#pragma once

#include <optional>
#include <vector>

#include "analysis/explain/answer.hpp"

namespace tilescope {

/// Those that save at least a hundredth of what is moved at their boundary, the largest gain first.
/// @param machine of the device; without, nothing is replayed
std::vector<NextStep> next_steps(const LaunchAnswer& answer, const KernelGroup& kernel, const KernelFit& fit,
                                 const std::optional<Machine>& machine);

}  // namespace tilescope
