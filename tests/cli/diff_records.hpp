// SPDX-License-Identifier: Apache-2.0
// Small records with every part that a comparison looks at.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "analysis/records/run_record.hpp"

namespace tilescope::testing {

inline constexpr std::int64_t kBytes = 1000;  // of every byte count of every pass

/// A forward and two backward passes, with closed form, simulation, counters, time and errors.
inline RunEntry run_of(const std::string& kernel) {
  RunEntry run;
  run.kernel = kernel;
  run.runs_on = kernel.substr(0, kernel.find(':'));
  run.problem.seqlen_q = run.problem.seqlen_k = 256;
  for (const char* name : {"forward", "dkdv", "dq"}) {
    PassRecord pass;
    pass.name = name;
    pass.direction = run.passes.empty() ? Direction::forward : Direction::backward;
    pass.flops = pass.executed_flops = kBytes;
    pass.closed_form = ClosedFormBytes{kBytes, kBytes, kBytes, kBytes};
    pass.simulated = SimulatedBytes{"h200", 1 << 20, 8, kBytes, kBytes, kBytes, kBytes, 0.5, {}};
    pass.measured = MeasuredBytes{kBytes, kBytes, kBytes, kBytes};
    pass.time = TimeRecord{1e-3, 1e-3, 0.01, {1e-3}};
    run.passes.push_back(pass);
  }
  run.error["o"] = TensorErrorRecord{1e-3, 1e-4, 2, 0, 2e-3};
  return run;
}

inline RunRecord record_of(std::vector<RunEntry> runs) {
  RunRecord record = start_record({"tilescope", "test"});
  record.runs = std::move(runs);
  return record;
}

}  // namespace tilescope::testing
