// SPDX-License-Identifier: Apache-2.0
// Every way to launch a kernel through the driver, read to one form.
#pragma once

#include <optional>
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

/// The kernels of a graph and of its child graphs, in the graph's own order.
std::vector<KernelMeasurement> kernels_of_graph(const DriverLibrary& driver, CUgraph graph);

}  // namespace tilescope
