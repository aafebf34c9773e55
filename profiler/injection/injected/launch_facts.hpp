// SPDX-License-Identifier: Apache-2.0
// Every way to launch a kernel through the driver, read to one form.
#pragma once

#include <vector>

#include "profiler/counters/cupti_library.hpp"
#include "profiler/driver/driver_library.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// Arguments of a launch call.
struct LaunchCall {
  CUfunction function = nullptr;  // nullptr for a graph
  CUgraphExec graph = nullptr;    // nullptr for a kernel
  CUstream stream = nullptr;
  LaunchFacts facts;
};

/// Driver callback ids of all launch calls. The runtime's launches arrive through these too.
const std::vector<CUpti_CallbackId>& launch_callback_ids();

/// @param id one of launch_callback_ids()
/// @param parameters the functionParams of the callback
LaunchCall read_launch_call(CUpti_CallbackId id, const void* parameters);

/// Adds registers, shared and local memory and the cluster that the kernel was compiled for. What the driver
/// does not tell stays absent.
void add_function_facts(const DriverLibrary& driver, CUfunction function, LaunchFacts& facts);

/// The kernel of a graph's node, by the parameters that the node has or is given.
KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v1& parameters);
KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v2& parameters);
KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v3& parameters);

}  // namespace tilescope
