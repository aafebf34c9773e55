// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/next_steps.hpp"

#include <cstdlib>

namespace tilescope::cli {

std::vector<NextStep> next_steps(const std::string& gpu_kernel, bool has_pytorch) {
  const bool has_gpu = !gpu_kernel.empty();
  std::vector<NextStep> steps;
  if (has_gpu && has_pytorch) {
    steps.push_back({"profile --metrics traffic --json k.json -- python3 examples/pytorch_attention.py",
                     "bytes of PyTorch's own kernels; then explain"});
  }
  if (has_gpu) {
    steps.push_back(
        {"profile --kernel " + gpu_kernel + " --preset llama3-8b", "counters beside the formula"});
    steps.push_back({"bench --kernel " + gpu_kernel + " --preset llama3-8b" + (has_pytorch ? " --peers" : ""),
                     has_pytorch ? "times, beside PyTorch's and Triton's" : "times"});
  } else {
    steps.push_back(
        {"simulate --model llama3-70b --tp 8 --machine a100-80gb,h200", "a model on GPUs that are not here"});
    steps.push_back(
        {"compare cpu:flash1 cpu:flash2 --preset gpt2-medium", "why two kernels move different bytes"});
  }
  if (steps.size() < 3)
    steps.push_back({"simulate --preset llama3-8b --tune-bytes", "which tiles and orders move least"});
  return steps;
}

bool pytorch_is_here() {
  return std::system(
             "python3 -c 'import importlib.util as i, sys; sys.exit(i.find_spec(\"torch\") is None)' "
             ">/dev/null 2>&1") == 0;
}

}  // namespace tilescope::cli
