// SPDX-License-Identifier: Apache-2.0
// Bugs that the tests must see. They exist only in the build that defines TILESCOPE_PLANTED_BUGS
// (the target tilescope_planted_bugs); elsewhere planted() is the constant false and costs nothing.
#pragma once

#include <type_traits>

namespace tilescope {

enum class PlantedBug : int {
  none,
};

#ifdef TILESCOPE_PLANTED_BUGS
inline PlantedBug active_bug = PlantedBug::none;
/// Whether the build is asked to misbehave in this way. Never during constant evaluation.
constexpr bool planted(PlantedBug bug) { return !std::is_constant_evaluated() && active_bug == bug; }
#else
constexpr bool planted(PlantedBug) { return false; }
#endif

}  // namespace tilescope
