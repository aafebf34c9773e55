// SPDX-License-Identifier: Apache-2.0
// How evenly the CTAs of a pass make their steps, as machine files and records state it. An SM does not share
// itself evenly between the CTAs that it holds: it favours the oldest, and gives more to one that is alone.
// Nor do all SMs get on equally well with the same code, and each GPC has a clock of its own: where power
// keeps the clocks below the highest, GPCs differ by thousandths. So CTAs drift apart, and what one of them
// has loaded may have left the L2 when another comes to it.
#pragma once

namespace tilescope {

inline constexpr double kLeastRate = 1e-3;

/// Progress of a pass's CTAs under oldest-first arbitration. A "cv" is a coefficient of variation: standard
/// deviation over mean.
struct ProgressRates {
  // Steps that a CTA makes while the oldest of an SM with all its CTAs makes one.
  double younger_rate = 1;  // beside an older one, on an SM with all its CTAs
  double alone_rate = 1;    // on an SM with room for others that have retired or never came
  double step_cv = 0;       // of the time of a step, each step by itself
  /// Of the rates of TPCs. The two SMs of a TPC keep step; TPCs do not where the loop is long: of three
  /// neighbours one lags by some thousandths, as if they shared an instruction cache. Source: steps of
  /// gpu:flash2-simt on an H200.
  double tpc_cv = 0;
  double clock_cv = 0;  // of the clocks of GPCs while the pass runs
  bool operator==(const ProgressRates&) const = default;
};

/// What was measured of one launch.
struct MeasuredProgress {
  int ctas_per_sm = 1;     // that an SM holds at most
  double step_cycles = 0;  // that an SM's oldest CTA takes for a step, the SM being full; 0: nobody looked
  /// Rates are 1 where no CTA was younger, or none alone. The step_cv is the oldest CTAs': of the time
  /// between two notes over that CTA's mean, times the root of the steps between them; 0 where nobody looked.
  ProgressRates rates;
  bool operator==(const MeasuredProgress&) const = default;
};

}  // namespace tilescope
