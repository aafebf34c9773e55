// SPDX-License-Identifier: Apache-2.0
// What to try after the demo, by what this machine has.
#pragma once

#include <string>
#include <vector>

namespace tilescope::cli {

struct NextStep {
  std::string command;  // behind ./tilescope
  std::string what;
};

/// Three. @param gpu_kernel  one that runs here, or empty
std::vector<NextStep> next_steps(const std::string& gpu_kernel, bool has_pytorch);

/// Whether `python3` can import PyTorch; it is not imported for that.
bool pytorch_is_here();

}  // namespace tilescope::cli
