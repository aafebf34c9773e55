// SPDX-License-Identifier: Apache-2.0
// What tests on a device share: which kernels they run, on what, and who judges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/numeric/tensor.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/random_problems.hpp"

namespace tilescope::testing {

/// From the command line.
struct DeviceTestOptions {
  int cases_per_kernel = 40;
  unsigned first_seed = 1;
  std::string only_kernel;                     // empty: all
  std::optional<BackwardOrder> only_backward;  // none: any that the kernel has
  std::optional<std::int64_t> only_head_dim;   // none: any
};
extern DeviceTestOptions device_options;

/// The rungs that are tested.
std::vector<GpuKernel> chosen_rungs();

/// Fails where a test ran no case, unless the command line asked for a kernel that has none.
void require_cases(std::int64_t ran);

/// A problem that the kernel takes, with lengths round its tile, any mask, grouping, scale and dropout.
AttentionProblem draw_problem(ProblemGenerator& random, const Kernel& kernel);
ProgramOptions draw_options(ProblemGenerator& random, const Kernel& kernel, const AttentionProblem& problem);

TensorSet with_inputs(const AttentionProblem& problem);
bool same_bits(const Tensor& a, const Tensor& b);

std::int64_t free_device_bytes();

/// Runs forward and, if `direction` is backward, backward on the device, and judges the results against exact
/// ones and the CPU mirror's, and, if observed, every tile that was visited.
void judge_on_device(Reference& reference, const Kernel& kernel, const ProgramOptions& options,
                     Direction direction, bool observed);
/// The same on normal inputs.
void judge_on_device(const Kernel& kernel, const AttentionProblem& problem, const ProgramOptions& options,
                     Direction direction, bool observed);

}  // namespace tilescope::testing
