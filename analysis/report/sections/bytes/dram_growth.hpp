// SPDX-License-Identifier: Apache-2.0
// With which power of N the DRAM reads of a head grow, from length to length: where K and V fit the L2 with
// the first, where they do not with the second.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"

namespace tilescope {

/// Two straight lines in logarithms that meet.
struct BrokenLine {
  double below = 0, above = 0;  // slopes
  double at = 0;                // x where they meet
};
/// By least squares, with the meeting point anywhere between the second point and the last but one; nothing
/// with fewer than five, which two slopes and their place would fit whatever they are.
/// @param points (x, y), positive, x ascending and different
std::optional<BrokenLine> fit_broken_line(std::span<const std::pair<double, double>> points);

/// Bytes of a head at one length.
struct DramPoint {
  double seqlen = 0, measured = 0;
  std::optional<double> simulated;
  std::optional<std::array<double, 2>> range;  // of the launches
};

/// One kernel on problems that differ in N alone.
struct DramSweep {
  const RunSummary* last = nullptr;  // the longest
  std::vector<DramPoint> points;     // by ascending N
  double rows_in_flight = 0;  // of the axis whose tiles CTAs own, in all CTAs that run at once; 0: not known
  double fills_l2_at = 0;     // N at which what one head streams takes the L2, kept twice

  std::vector<double> local_exponents(bool simulated) const;
  /// "1.95 (1.93 ... 1.97)": with what the launches leave open.
  std::string local_text() const;
  /// Whether M <= N d holds at its longest: with M the L2 and everything on chip before it.
  bool within_hypotheses = false;
  double chip_elements = 0;  // that M, of the inputs' width; 0: not known
};

/// Measured sweeps of three lengths or more, up to where one head's K and V are about as large as an L2.
std::vector<DramSweep> dram_sweeps(const std::vector<RunSummary>& runs);

}  // namespace tilescope
