// SPDX-License-Identifier: Apache-2.0
// Predicted time of a pass: CTAs of known clocks on the SMs in the grid's order, beside what L2 and DRAM need.
#pragma once

#include <cstdint>
#include <optional>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// Until the last of the pass's CTAs ends. [clocks]
/// @param begin, between, end  of a CTA's block: before its first step, each step, behind its last
/// @param slots  CTAs that run at once
double end_of_ctas(const TileProgram& program, std::int64_t slots, double begin, double between, double end);

/// @param launched_together  CTAs that run at once, see launched_together()
/// @return nothing where the kernel's row or the machine does not say enough: a bound is all that is known
std::optional<PredictedTime> predicted_time(const Kernel& kernel, const TileProgram& program,
                                            const Machine& machine, std::int64_t launched_together,
                                            const PassRecord& pass);

}  // namespace tilescope
