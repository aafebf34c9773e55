// SPDX-License-Identifier: Apache-2.0
// The questions that open a report. Each is absent when the records do not say.
#pragma once

#include <optional>
#include <vector>

#include "analysis/model/counts/run_summary.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// Cases within their bound, from `verify`.
std::optional<Finding> error_verdict(const std::vector<RunRecord>& records);
/// DRAM and SM<->L2 bytes of the last algorithm against what is compulsory, on the most telling problem.
std::optional<Finding> bytes_verdict(const std::vector<RunSummary>& runs);
/// DRAM reads against the model: of problems that nothing was fitted to where there are any, else of all.
std::optional<Finding> model_verdict(const std::vector<RunSummary>& runs,
                                     const std::vector<RunSummary>& holdout);
/// Rates beside other libraries, else beside a matrix product on the CPU.
std::optional<Finding> speed_verdict(const std::vector<RunSummary>& runs);

}  // namespace tilescope
