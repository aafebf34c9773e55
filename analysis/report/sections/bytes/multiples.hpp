// SPDX-License-Identifier: Apache-2.0
// What to think of a multiple of the bytes that must move.
#pragma once

#include "analysis/report/document/report_document.hpp"
#include "common/number_format.hpp"

namespace tilescope {

/// From here on a pass is bad, at either boundary: half of its bytes or more are its schedule's doing and not
/// the problem's, so that another schedule could halve them.
inline constexpr double kBadMultiple = 2;
/// Up to here it is good: the rest is less than what partly written sectors and two launches differ by.
inline constexpr double kGoodMultiple = 1.1;

inline Outcome outcome_of_multiple(double multiple) {
  return multiple >= kBadMultiple ? Outcome::bad : multiple <= kGoodMultiple ? Outcome::good : Outcome::mixed;
}

/// "DRAM 1.00x" with what to think of it.
inline Amount multiple_amount(const char* boundary, double multiple) {
  return {format_ratio(multiple), boundary, outcome_of_multiple(multiple)};
}

}  // namespace tilescope
