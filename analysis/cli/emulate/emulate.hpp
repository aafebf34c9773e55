// SPDX-License-Identifier: Apache-2.0
// What the files of `tilescope emulate` share.
#pragma once

#include <optional>
#include <string>

#include "analysis/cli/command.hpp"
#include "analysis/cli/emulate/emulate_arguments.hpp"
#include "analysis/cli/emulate/launch_file.hpp"
#include "emulator/kernel_call.hpp"
#include "profiler/records/kernel_record.hpp"

namespace tilescope::cli {

/// The PTX of a file: as it stands, or of a .cu compiled by nvcc with lines of the source.
/// @throws BadInput for a file that is neither or does not compile; MachineLacks where there is no nvcc
std::string ptx_of(const std::string& path, const std::string& arch);

/// What ptxas makes of a kernel.
struct Assembled {
  int registers = 0;                                // of a thread
  int spill_store_bytes = 0, spill_load_bytes = 0;  // of a thread, once
  std::string sass;  // of its whole module, where there is cuobjdump or nvdisasm
};
/// Nothing where there is no ptxas, or it does not take the PTX.
std::optional<Assembled> assemble(const std::string& ptx, const std::string& target,
                                  const std::string& kernel);

/// How the arrays of a launch compare with what was expected of them.
struct ReferenceCheck {
  std::optional<bool> right;  // nothing where nothing was expected
  std::string text;           // a line for each array
};
ReferenceCheck check_reference(const LaunchFile& launch);

/// The launch's bytes, then its lines with bytes, sectors a request and findings beside the source, where the
/// source can be read.
/// @param races  whether they were looked for
Output emulation_text(const KernelMeasurement& kernel, bool races);

/// One JSON object for programs that write kernels.
std::string verdict_json(const KernelMeasurement& kernel);

}  // namespace tilescope::cli
