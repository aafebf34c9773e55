// SPDX-License-Identifier: Apache-2.0
// The profiler's metrics of a pass, worked out again from the counters in its record.
#pragma once

#include <map>
#include <string>

#include "analysis/records/run_record.hpp"

namespace tilescope {

/// By name, of those whose counters the record has.
std::map<std::string, double> pass_metrics(const PassRecord& pass);

}  // namespace tilescope
