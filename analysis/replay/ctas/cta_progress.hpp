// SPDX-License-Identifier: Apache-2.0
// How evenly the CTAs of a pass make their steps. An SM does not share itself evenly between the CTAs that it
// holds: it favours the oldest, and gives more to one that is alone. Nor do all SMs get on equally well with
// the same code, and each GPC has a clock of its own: where power keeps the clocks below the highest, GPCs
// differ by thousandths. So CTAs drift apart, and what one of them has loaded may have left the L2 when
// another comes to it.
#pragma once

#include <map>
#include <optional>

#include "cpu_ref/launch/step_times.hpp"

namespace tilescope {

/// How the CTAs of a pass share an SM, and how even their steps are.
struct CtaPaces {
  // Steps that a CTA makes while the oldest of an SM with all its CTAs makes one.
  double younger = 1;  // beside an older one, on an SM with all its CTAs
  double alone = 1;    // on an SM with room for others that have retired or never came
  /// Standard deviation of the time of a step over its mean, each step by itself.
  double step_spread = 0;
  /// Standard deviation of the paces of TPCs over their mean. The two SMs of a TPC keep step; TPCs do not
  /// where the loop is long: of three neighbours one lags by some thousandths, as if they shared an
  /// instruction cache. Source: steps of gpu:flash2-simt on an H200.
  double tpc_spread = 0;
  /// Standard deviation of the clocks of GPCs over their mean while the pass runs.
  double clock_spread = 0;
  bool operator==(const CtaPaces&) const = default;
};

/// What was measured of one launch.
struct MeasuredPaces {
  int ctas_per_sm = 1;     // that an SM holds at most
  double step_cycles = 0;  // that an SM's oldest CTA takes for a step, the SM being full; 0: nobody looked
  /// 1 where no CTA was younger, or none alone. The step_spread is the oldest CTAs': the standard deviation
  /// of the time between two notes over that CTA's mean, times the root of the steps between them; 0 where
  /// nobody looked.
  CtaPaces paces;
  bool operator==(const MeasuredPaces&) const = default;
};

/// Means over the steps of all CTAs, by how many CTAs their SM held at the time and which was the oldest.
/// @param times of one launch in which an SM holds up to `ctas_per_sm` CTAs
/// @returns nothing where no SM held that many for several notes
std::optional<MeasuredPaces> measured_paces(const StepTimes& times, int ctas_per_sm);

/// A CtaPaces::tpc_spread, from what the two SMs of a TPC have in common: what either does by itself does not
/// count.
/// @param cycles that each SM took for the same work, by SM id; neighbouring ids, the lower one even, are of
/// one TPC
double measured_tpc_spread(const std::map<int, double>& cycles);

}  // namespace tilescope
