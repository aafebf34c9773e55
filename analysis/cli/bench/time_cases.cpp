// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/bench/time_cases.hpp"

namespace tilescope::cli {

std::vector<RowsJob> rows_jobs(const std::vector<BenchmarkCase>& cases) {
  std::vector<RowsJob> jobs;
  for (const BenchmarkCase& c : cases) jobs.push_back({c.kernel, c.problem, c.direction, c.options});
  return jobs;
}

DeviceBenchmarkResults time_on_device(const std::vector<BenchmarkCase>& cases,
                                      DeviceBenchmarkSettings settings, PeerProcess* peers,
                                      std::int64_t steps, const CommandContext& context) {
  Progress progress(context, "timing", steps);
  settings.on_sample = [&](const std::string& name) { progress.step(name); };
  return run_device_benchmarks(cases, settings, peers);
}

}  // namespace tilescope::cli
