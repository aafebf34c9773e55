// SPDX-License-Identifier: Apache-2.0
// What `bench` timed on a device, ours and other libraries' kernels, by record and direction.
#pragma once

#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// Whether it is a kernel of TileScope's.
bool is_ours(const RunSummary& run);
/// By the papers' count. [FLOP/s]
double paper_rate(const RunSummary& run);

/// The runs of one direction in one record.
struct DeviceRuns {
  const RunRecord* record = nullptr;
  Direction direction = Direction::forward;
  std::vector<const RunSummary*> runs;

  /// Labels of our kernels, then of the others, in the order of the record.
  std::vector<std::string> labels(bool ours) const;
  std::vector<std::string> labels() const;
  std::vector<AttentionProblem> problems() const;
  /// Null if there is none.
  const RunSummary* find(const std::string& label, const AttentionProblem& problem) const;
};

/// Record after record, forward before backward.
std::vector<DeviceRuns> device_runs(const std::vector<RunSummary>& runs);

/// Forward and backward, each of the first record that has our kernels and others' in that direction: what is
/// compared was timed in one run, at the same clocks.
std::vector<DeviceRuns> runs_beside_peers(const std::vector<RunSummary>& runs);

}  // namespace tilescope
