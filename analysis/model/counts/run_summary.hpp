// SPDX-License-Identifier: Apache-2.0
// One direction of one run of a record, its passes summed: what the figures and tables of a report show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Points into the records that it was made from.
struct RunSummary {
  const RunRecord* record = nullptr;
  const RunEntry* run = nullptr;
  Direction direction = Direction::forward;
  std::vector<const PassRecord*> passes;

  std::string label;                   // "flash2 split": kernel without "cpu:", and its backward order
  std::optional<Algorithm> algorithm;  // of our kernels
  /// Whether a kernel of ours for GPUs multiplies on CUDA cores; nothing for others, and where its record,
  /// made before records had the unit, does not let one tell.
  std::optional<bool> on_cuda_cores;
  TileShape tile;                 // of the pass that moves most
  std::int64_t useful_flops = 0;  // of the direction, however it is computed
  std::int64_t executed_flops = 0;
  std::int64_t diagonal_slices = 1;  // parts a side of a tile that the mask cuts
  std::int64_t exponentials = 0;     // of its passes, over visible pairs
  ReadWriteBytes compulsory;         // of the direction, see closed_form.hpp
  /// Summed over the passes; absent unless every pass has it.
  std::optional<ReadWriteBytes> closed_form, simulated_sm_l2, simulated_dram, measured_sm_l2, measured_dram;
  std::optional<double> median_seconds;
  std::string machine_model;  // that was simulated, "" if none

  const AttentionProblem& problem() const { return run->problem; }
};

/// "flash2 split (longest-first)": the kernel without "cpu:", its backward order, and what it was told to do
/// otherwise than it would. The direction has passes. @param orders  of CTAs, tiles and pages too
std::string run_label(const RunEntry& run, Direction direction, bool orders = true);

/// Every direction of every run, in the order of the records; runs without passes, and cases that were only
/// judged by their errors, give none.
std::vector<RunSummary> summarize(const std::vector<RunRecord>& records);

/// The machine that a run was simulated on; nothing when there is none or it was a file that this machine
/// lacks.
std::optional<Machine> machine_of(const RunSummary& run);

/// "./tilescope simulate --preset fa2-16k": the command line `argv`, without where it wrote.
std::string command_text(const std::vector<std::string>& argv);
/// "B1 H16 N4096 D128 fp16": the problem without its seed, on which no byte depends.
std::string problem_text(const RunSummary& run, bool with_seqlen = true);

/// "128x64"
std::string to_string(TileShape tile);
/// "128x64", "128x64 in 4x4" where tiles on the mask's edge are cut finer.
std::string tile_text(const PassRecord& pass);

}  // namespace tilescope
