// SPDX-License-Identifier: Apache-2.0
// Parts of the section on several GPUs that rest on models and ceilings: what links carry at best, the
// roofline whose boundary is the link, and what schedules would cost at more GPUs.
#pragma once

#include <optional>
#include <vector>

#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/distributed_record.hpp"
#include "analysis/report/document/report_document.hpp"

namespace tilescope {

/// Tables without rows and figures without points are left out by who shows them.
Table link_ceiling_table(const std::vector<CeilingsRecord>& records);
Table link_roofline_table(const std::vector<DistributedRecord>& records);
std::optional<Figure> link_roofline_figure(const std::vector<DistributedRecord>& records);
/// Of records of `simulate --gpus N,N,...`.
Table scaling_table(const std::vector<DistributedRecord>& records);
std::optional<Figure> scaling_figure(const std::vector<DistributedRecord>& records);

/// "H32/8 D128 bf16 causal"
std::string ranked_shape(const AttentionProblem& problem);

}  // namespace tilescope
