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

/// Three.
std::vector<NextStep> next_steps(bool has_gpu, bool has_pytorch);

/// Whether `python3` can import PyTorch; it is not imported for that.
bool pytorch_is_here();

}  // namespace tilescope::cli
