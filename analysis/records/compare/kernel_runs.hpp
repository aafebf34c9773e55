// SPDX-License-Identifier: Apache-2.0
// A record of a command's kernels as runs, so that two of them can be compared like any two records.
#pragma once

#include "analysis/records/run_record.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// A run for each kernel and geometry, in the order of their first launches, with one pass: bytes and times
/// are sums over all launches, so that one launch more counts too. Such a run has no problem.
RunRecord runs_of(const KernelRecord& record);

/// Whether runs_of() made it: no real problem has one query and one key.
bool without_problem(const RunEntry& run);

}  // namespace tilescope
