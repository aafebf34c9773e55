// SPDX-License-Identifier: Apache-2.0
// What `tilescope simulate` prints of a run. A direction that is asked for has passes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/studies/model_shapes.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

/// Kernels, or machines, side by side: a block for each direction with a line for each run, all of one
/// problem.
/// @param machines  those that were simulated, with the ceilings to judge by
std::string comparison_table(const std::vector<RunEntry>& runs, const std::vector<Machine>& machines);

/// What decides the runs' DRAM bytes beside their tiles, and how far to trust them: the orders of CTAs and
/// tiles, the model of the L2; once for kernels of which it is the same. @param machines  of each run @param
/// lru_bytes  of an L2 that was asked for
std::string dram_basis(const std::vector<RunEntry>& runs, const std::vector<const Machine*>& machines,
                       std::optional<std::int64_t> lru_bytes);

/// What a layer's DRAM bytes make of a whole model, and of one of its tokens.
/// @param name_machine where there are several
std::string model_line(const RunEntry& run, const ModelShape& model, bool name_machine);

/// One column a pass, and one for their sum where there are several.
/// @param planned the passes of the run
std::string pass_table(const RunEntry& run, Direction direction, const Machine& machine,
                       const std::vector<PlannedPass>& planned);

/// A line for each direction of each run: bytes at both boundaries, and over what must be moved.
std::string simulated_sweep_table(const std::vector<RunEntry>& runs);

/// The lower bounds on what the direction reads at each boundary, and how far above them the run is.
std::string bound_lines(const RunEntry& run, Direction direction, Algorithm algorithm,
                        const Machine& machine);

/// "on NVIDIA H200: 132 SMs, L2 60.0 MiB in two partitions"
std::string machine_line(const Machine& machine, const SimulationOptions& how);

/// The peaks and bandwidths that the tables use, each with its kind of evidence.
std::string ceiling_line(const Machine& machine, ElementType dtype);

/// DRAM bytes of the direction against L2 size; sizes that change nothing are left out.
std::string curve_table(const RunEntry& run, Direction direction);

}  // namespace tilescope::cli
