// SPDX-License-Identifier: Apache-2.0
// One pass with its closed form, its simulation and its counters, and how far they lie from one another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/model/validation/noise_floor_bytes.hpp"

namespace tilescope {

/// A pass of which both the formula and the counters are there. Errors are in parts of 1, 0.01 = 1 %.
struct MeasuredPass {
  const RunSummary* run;
  const PassRecord* pass;

  const std::string& kernel() const { return run->run->kernel; }
  bool random_pages() const { return run->run->pages == PagePlacement::random; }
  /// Measured against the closed form at SM<->L2.
  double read_error() const;
  double write_error() const;
  /// Bytes written beyond the formula by each thread of the launch.
  std::optional<double> excess_per_thread() const;

  /// Whether there is something to compare: a pass that only writes reads nothing.
  bool has_dram() const;
  /// Whether it reads about every byte once, so that there is nothing for an L2 to save and no model to test.
  bool reads_once() const;
  /// Whether the model or the device reads more than what is compulsory: where a model can fail. Of a pass
  /// that has_dram(), as all that follow.
  bool leaves_floor() const;
  /// Whether the model says that the L2 saves all but a twentieth of what it can save.
  bool fits() const;
  /// Bytes that the model expects of the counter: simulated DRAM reads, and the code and constants that L2
  /// fetched, which no simulation knows, where they were measured.
  std::int64_t expected_dram_reads() const;
  /// Expected against measured DRAM reads, which are the median over the launches.
  double dram_error() const;
  /// How much more than the least of the launches the largest read, in parts of the median; nothing of one
  /// launch. With pages at random places each launch has other pages.
  std::optional<double> launch_spread() const;
  /// Whether expected and measured reads agree. The device by itself may have made up to noise_floor_bytes()
  /// of the measured ones in the time of the pass. Less these, the median agrees within the tolerance, or
  /// the expected reads lie between the least and the most that a launch read.
  bool dram_within(double tolerance, const std::vector<NoiseFloor>& noise_floor) const;

 private:
  /// The time of the pass without counters, else of the run with them.
  std::optional<double> seconds() const;
};

/// Those of all runs, in order.
std::vector<MeasuredPass> measured_passes(const std::vector<RunSummary>& runs);

}  // namespace tilescope
