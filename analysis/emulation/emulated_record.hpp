// SPDX-License-Identifier: Apache-2.0
// What came of a launch on the emulated device as a record of kernels, for the command line and for Python.
#pragma once

#include <string>
#include <vector>

#include "emulator/kernel_call.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope {

/// The record of one launch, schema "tilescope.kernels/1".
/// @param kernel_file  beside which sources are looked for that are not where the PTX says; may be empty
KernelRecord emulated_record(const std::vector<std::string>& argv, const gpu::emulator::KernelCall& call,
                             const gpu::emulator::ptx::Module& module,
                             const gpu::emulator::KernelResult& result, const std::string& kernel_file);

}  // namespace tilescope
