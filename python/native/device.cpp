// SPDX-License-Identifier: Apache-2.0
#include "python/native/device.hpp"

#include <algorithm>

#include "gpu/launch/pass_arguments.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::python {
namespace {

/// The passes of a kernel that takes the problem, and how to launch them.
struct Launches {
  const GpuKernel* kernel;
  std::vector<TileProgram> programs;
};

Launches launches_of(const AttentionProblem& problem, const KernelUse& use, bool backward) {
  const Direction direction = backward ? Direction::backward : Direction::forward;
  const Kernel& row = find_kernel(use.kernel);
  const GpuKernel& kernel = find_gpu_kernel(use.kernel);
  const ProgramOptions options = options_of(row, problem, use);
  require_supported(row, problem, direction, options);
  if (kernel.launch == nullptr) require_runnable(row);
  return {&kernel, row.programs(direction, problem, options)};
}

}  // namespace

std::vector<Workspace> device_workspaces(const AttentionProblem& problem, const KernelUse& use, bool backward,
                                         const std::vector<std::string>& given) {
  require_runnable(find_kernel(use.kernel));
  std::vector<Workspace> workspaces;
  for (const TensorName name : tensors_of(launches_of(problem, use, backward).programs)) {
    if (std::find(given.begin(), given.end(), to_string(name)) != given.end()) continue;
    const TensorExtent extent = tensor_extent(problem, name);
    workspaces.push_back({std::string(to_string(name)),
                          {extent.batch, extent.heads, extent.rows, extent.cols},
                          std::string(to_string(extent.dtype))});
  }
  return workspaces;
}

void device_launch(const AttentionProblem& problem, const KernelUse& use, bool backward,
                   std::uintptr_t stream, const std::vector<DeviceArray>& tensors, std::uintptr_t counter) {
  const Launches launches = launches_of(problem, use, backward);
  const std::set<TensorName> needed = tensors_of(launches.programs);
  std::array<DeviceTensor, kNumTensors> placed{};
  for (const TensorName name : needed) {
    const auto found = std::find_if(tensors.begin(), tensors.end(), [name](const DeviceArray& array) {
      return std::get<0>(array) == to_string(name);
    });
    if (found == tensors.end()) {
      throw BadInput(std::string(to_string(name)), "(none)", "must be given, the kernel touches it");
    }
    const auto& [text, address, strides] = *found;
    placed[static_cast<std::size_t>(name)] = {reinterpret_cast<void*>(address), strides[0], strides[1],
                                              strides[2]};
  }
  for (const TileProgram& program : launches.programs) {
    KernelArguments arguments = pass_arguments(program);
    arguments.tensors = placed;
    arguments.counter = reinterpret_cast<WorkCounter*>(counter);
    launches.kernel->launch(program, arguments, reinterpret_cast<CUstream_st*>(stream));
  }
}

}  // namespace tilescope::python
