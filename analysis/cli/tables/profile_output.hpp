// SPDX-License-Identifier: Apache-2.0
// What `tilescope profile` prints.
#pragma once

#include <string>

#include "analysis/cli/command.hpp"
#include "profiler/calibration/self_test.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::cli {

/// One line a kernel and grid: means over its launches, and then of the counters that were asked for by name.
std::string kernel_table(const KernelRecord& record);
/// How it was measured, and what is missing.
std::string conclusion(const KernelRecord& record);
/// Prints declared against measured and writes the record. @returns the exit code
int report_self_test(const SelfTest& test, const CommandContext& context);

}  // namespace tilescope::cli
