// SPDX-License-Identifier: Apache-2.0
// What came of a launch on the emulated device as a record of kernels, for the command line and for Python.
#pragma once

#include <string>
#include <vector>

#include "emulator/counts/result_file.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// The record of launches, schema "tilescope.kernels/1".
/// @param kernel_file  beside which sources are looked for that are not where the PTX says; may be empty
KernelRecord emulated_record(const std::vector<std::string>& argv,
                             const std::vector<gpu::emulator::ToldLaunch>& launches,
                             const std::string& kernel_file);

}  // namespace tilescope
