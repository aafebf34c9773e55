// SPDX-License-Identifier: Apache-2.0
// What `tilescope simulate` prints of a run. A direction that is asked for has passes.
#pragma once

#include <string>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

/// One column a pass, and one for their sum where there are several.
std::string pass_table(const RunEntry& run, Direction direction, const Machine& machine);

/// A line for each direction of each run: reads at both boundaries.
std::string simulated_sweep_table(const std::vector<RunEntry>& runs);

/// The lower bounds on what the direction reads at each boundary, and how far above them the run is.
std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine);

/// The peaks and bandwidths that the tables use, each with its kind of evidence.
std::string ceiling_line(const Machine& machine, ElementType dtype);

/// DRAM bytes of the direction against L2 size; sizes that change nothing are left out.
std::string curve_table(const RunEntry& run, Direction direction);

}  // namespace tilescope::cli
