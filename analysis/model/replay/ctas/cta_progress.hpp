// SPDX-License-Identifier: Apache-2.0
// Progress rates out of the times at which the CTAs of a launch began their steps, and out of the cycles that
// SMs took.
#pragma once

#include <map>
#include <optional>

#include "analysis/records/progress_rates.hpp"
#include "cpu_ref/launch/step_times.hpp"

namespace tilescope {

/// Means over the steps of all CTAs, by how many CTAs their SM held at the time and which was the oldest.
/// @param times of one launch in which an SM holds up to `ctas_per_sm` CTAs
/// @returns nothing where no SM held that many for several notes
std::optional<MeasuredProgress> measured_progress(const StepTimes& times, int ctas_per_sm);

/// A ProgressRates::tpc_cv, from what the two SMs of a TPC have in common: what either does by itself does
/// not count.
/// @param cycles that each SM took for the same work, by SM id; neighbouring ids, the lower one even, are of
/// one TPC
double measured_tpc_cv(const std::map<int, double>& cycles);

}  // namespace tilescope
