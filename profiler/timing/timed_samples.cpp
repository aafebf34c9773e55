// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/timed_samples.hpp"

#include <algorithm>
#include <string>

#include "common/errors.hpp"
#include "common/statistics.hpp"

namespace tilescope {

std::string_view to_string(L2State state) { return state == L2State::cold ? "cold" : "warm"; }

L2State parse_l2_state(std::string_view text) {
  for (const L2State state : {L2State::cold, L2State::warm}) {
    if (to_string(state) == text) return state;
  }
  throw BadInput("l2", std::string(text), "must be cold or warm");
}

double TimedSamples::median_s() const { return median_of(samples_s); }
double TimedSamples::min_s() const { return *std::ranges::min_element(samples_s); }

}  // namespace tilescope
