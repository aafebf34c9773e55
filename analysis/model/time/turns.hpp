// SPDX-License-Identifier: Apache-2.0
// When the CTAs of an ordered pass end, each of which adds to the dQ of a q tile after all kv tiles in front
// of its own.
#pragma once

#include <cstdint>

#include "analysis/model/time/step_clocks.hpp"

namespace tilescope {

/// Until the last CTA ends: one that waits for another's sum stands still, with its SM's share. CTAs that
/// share a kv tile add to dK and dV one after the other, too.
/// Precondition: program.ordered, and a CTA has one block.
///
/// @param slots  CTAs that run at once
/// @return clocks
double end_in_turn(const TileProgram& program, std::int64_t slots, const CtaClocks& clocks);

}  // namespace tilescope
