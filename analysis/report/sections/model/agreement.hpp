// SPDX-License-Identifier: Apache-2.0
// How many cases of a kernel agree with what was expected, a row a kernel, and the others by size.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/model/validation/noise_floor_bytes.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// What is left over at SM<->L2 beside the closed form when all is accounted for; shares of the closed form.
inline constexpr double kExactReads = 2e-4, kExactWrites = 1e-4;

/// A case and how far it is off, in parts of 1.
struct Deviation {
  std::string kernel, pass, problem, side;  // side: "read", "written"
  double off = 0;
  bool agrees = true;
};

/// "118 of 118" cases and kernels.
struct AgreementCount {
  std::size_t agree = 0, all = 0;
  std::string text() const;
};
AgreementCount count_agreeing(const std::vector<Deviation>& deviations);

/// "+0.012 ... +0.250 %", or "+0.012 %" where both ends are printed alike. @param low, high parts of 1
std::string percent_range(double low, double high);

/// Whether percent_range says that nothing at all is off.
bool nothing_off(std::string_view percent_range);

/// "24 of 76 rows, in which nothing is off at three digits, are left out."
std::string left_out_text(std::size_t silent, std::size_t all);

/// What counters leave over at SM<->L2 beside closed form and causes, each pass read and written.
std::vector<Deviation> account_deviations(const std::vector<RunSummary>& runs);

/// Simulated against measured DRAM reads of the passes that read something again: how many are within the
/// tolerances of the report's table, how many of them by their medians, and those that are not, by kernel.
struct DramAgreement {
  std::size_t all = 0, within = 0, by_median = 0;
  std::map<std::string, std::size_t> exceptions;
};
DramAgreement dram_agreement(const std::vector<RunSummary>& runs, const std::vector<NoiseFloor>& noise_floor);

/// Problems on which two orders were simulated before they were measured, and of those whose reads changed by
/// more than kChange how many changed as predicted: the same way.
struct PredictedChanges {
  std::size_t pairs = 0, changed = 0, right = 0;
};
inline constexpr double kChange = 0.05;
PredictedChanges predicted_changes(const std::vector<RunSummary>& runs);

/// Those that do not agree, the largest first; then one row a kernel.
/// @param word what they are if they agree: "exact"
void add_agreement(Section& section, const std::vector<Deviation>& deviations, const std::string& word,
                   const std::string& caption);

}  // namespace tilescope
