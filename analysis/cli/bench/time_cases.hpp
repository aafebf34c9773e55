// SPDX-License-Identifier: Apache-2.0
// Cases on the device, judged before and timed with a line of progress.
#pragma once

#include <cstdint>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/verify/rows_before.hpp"
#include "profiler/benchmarks/device_benchmarks.hpp"
#include "profiler/benchmarks/peer_process.hpp"

namespace tilescope::cli {

/// What is judged of the cases before they are timed.
std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases);

/// @param steps  of the progress that is shown, 0: not known
DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context);

}  // namespace tilescope::cli
