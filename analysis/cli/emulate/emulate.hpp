// SPDX-License-Identifier: Apache-2.0
// What the files of `tilescope emulate` share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/cli/command.hpp"
#include "analysis/cli/emulate/launch_file.hpp"
#include "emulator/kernel_call.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::cli {

/// The PTX of a file: as it stands, or of a .cu compiled by nvcc with lines of the source.
/// @throws BadInput for a file that is neither or does not compile; MachineLacks where there is no nvcc
std::string ptx_of(const std::string& path, const std::string& arch);

/// Runs a program that is linked against the emulated CUDA runtime. @returns its exit code where that is not
/// 0
int emulate_program(const std::vector<std::string>& words, bool races, std::int64_t seed,
                    const CommandContext& context);

/// How the arrays of a launch compare with what was expected of them.
struct ReferenceCheck {
  std::optional<bool> right;  // nothing where nothing was expected
  std::string text;           // a line for each array
};
ReferenceCheck check_reference(const LaunchFile& launch);

/// The launch's bytes, then its lines with bytes, sectors a request and findings beside the source, where the
/// source can be read.
Output emulation_text(const KernelMeasurement& kernel);

/// One JSON object for programs that write kernels.
std::string verdict_json(const KernelMeasurement& kernel);

}  // namespace tilescope::cli
