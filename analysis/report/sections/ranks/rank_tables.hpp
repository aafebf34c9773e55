// SPDX-License-Identifier: Apache-2.0
// Parts of the section on several GPUs that rest on models and ceilings: what links carry at best, the
// roofline whose boundary is the link, what of the time is lost to what, and what schedules would cost at
// more GPUs.
#pragma once

#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/distributed_record.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// Tables without rows and figures without points are left out by who shows them.
Table link_ceiling_table(const std::vector<CeilingsRecord>& records);
Table link_roofline_table(const std::vector<DistributedRecord>& records);
std::optional<Figure> link_roofline_figure(const std::vector<DistributedRecord>& records);
/// Predictions that name their losses: schedules side by side, and the causes.
Table predicted_schedules_table(const std::vector<DistributedRecord>& records);
Table lost_time_table(const std::vector<DistributedRecord>& records);

/// From records of `simulate --gpus N,N,...`.
Table scaling_table(const std::vector<DistributedRecord>& records);
std::optional<Figure> scaling_figure(const std::vector<DistributedRecord>& records);

/// "12.3 %" of 0.123, "-" of nothing.
std::string share_text(const std::optional<double>& share);

/// "H32/8 D128 bf16 causal"
std::string ranked_shape(const AttentionProblem& problem);

/// The identity of a pass.
using RankedPassKey = std::tuple<std::string, std::string, std::int64_t, std::string, std::int64_t>;
inline RankedPassKey ranked_key(const DistributedRun& run, const DistributedPass& pass) {
  return {ranked_shape(run.problem), run.schedule, run.problem.seqlen_k / run.gpus, pass.name, run.gpus};
}

/// Calls visit(record, run, pass) for every pass of the records.
template <typename Visitor>
void for_each_ranked_pass(const std::vector<DistributedRecord>& records, Visitor&& visit) {
  for (const DistributedRecord& record : records) {
    for (const DistributedRun& run : record.runs) {
      for (const DistributedPass& pass : run.passes) visit(record, run, pass);
    }
  }
}

}  // namespace tilescope
