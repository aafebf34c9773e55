// SPDX-License-Identifier: Apache-2.0
// GPU kernels on memory of somebody else's: no allocation, no copy, no waiting, on a stream that is given.
#pragma once

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "python/native/arrays.hpp"

namespace tilescope::python {

/// A tensor that the passes of a direction need beside inputs and outputs: its name, (B, H, N, D) and element
/// type.
using Workspace = std::tuple<std::string, std::array<std::int64_t, 4>, std::string>;
/// @param given  names of the tensors that the caller has
/// @throws BadInput where the kernel refuses the problem, MachineLacks where this machine cannot run it
std::vector<Workspace> device_workspaces(const AttentionProblem& problem, const KernelUse& use, bool backward,
                                         const std::vector<std::string>& given);

/// Name, address and strides [elements] of batch, head and row; columns are contiguous.
using DeviceArray = std::tuple<std::string, std::uintptr_t, std::array<std::int64_t, 3>>;
/// Enqueues the passes of a direction on `stream` of the current context.
/// @param counter  address of two ints that are 0
/// @throws BadInput where a tensor is missing, DeviceError where a launch fails
void device_launch(const AttentionProblem& problem, const KernelUse& use, bool backward,
                   std::uintptr_t stream, const std::vector<DeviceArray>& tensors, std::uintptr_t counter);

}  // namespace tilescope::python
