// SPDX-License-Identifier: Apache-2.0
// The runs of a record simulated again, so that a measured record and a model that was refined after it can
// be laid side by side.
#pragma once

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/kernels/kernel.hpp"

namespace tilescope {

/// The choices that made the passes of `run`: tiles, backward order, CTA order and scan.
ProgramOptions options_of(const RunEntry& run, const Kernel& kernel);

/// `run` with closed forms and simulation on `machine`, with pages placed as its own, in place of those it
/// had; what was measured stays.
/// @throws BadInput when the kernel's passes are not those of the run
RunEntry simulate_again(const RunEntry& run, const Kernel& kernel, const Machine& machine,
                        SimulationOptions options = {});

/// Whether the run is one of `bench`: its passes were timed, those of a direction as one, and never counted.
bool only_timed(const RunEntry& run);
/// The passes of such a run apart, by the choices that it tells and else the kernel's own, with closed forms,
/// simulation and predicted times.
RunEntry simulate_apart(const RunEntry& run, const Kernel& kernel, const Machine& machine,
                        SimulationOptions options = {});

/// `run` without anything that was measured.
RunEntry without_measurements(const RunEntry& run);

/// Lays simulations beside the measurements that they were made for, where those are among the records too,
/// for tables that show both: records of the command and the time that the simulation names, with the same
/// runs, of the device that was simulated. The records of such simulations keep no runs; a simulation of
/// another device than measured keeps its own.
void join_simulations(std::vector<RunRecord>& records);

}  // namespace tilescope
