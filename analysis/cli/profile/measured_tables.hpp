// SPDX-License-Identifier: Apache-2.0
// What `tilescope profile --kernel` prints: the bytes of each pass as formula, simulation and counters have
// them.
#pragma once

#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

/// A line for each pass and boundary, and for their sum: bytes, and what was measured over the closed form,
/// over the compulsory floor and, where the direction is whole, over the lower bound on `machine`. The run
/// has passes of that direction.
std::string measured_table(const RunEntry& run, Direction direction, Algorithm algorithm,
                           const Machine& machine);

/// The counters that `metrics`, as choose_metrics takes them, asks for by CUPTI's own names; empty where
/// there are none.
std::string counter_table(const RunEntry& run, Direction direction, const std::string& metrics);

/// A line for each pass: time, rate and launch.
std::string time_table(const RunEntry& run, Direction direction);

/// A line for each direction of each run.
std::string sweep_table(const std::vector<RunEntry>& runs);

}  // namespace tilescope::cli
