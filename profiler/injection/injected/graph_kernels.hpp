// SPDX-License-Identifier: Apache-2.0
// The kernels of the graphs that a process can launch, as it has changed them since.
#pragma once

#include <map>
#include <mutex>
#include <vector>

#include "profiler/counters/cupti_library.hpp"
#include "profiler/driver/driver_library.hpp"
#include "profiler/records/kernel_measurement.hpp"

namespace tilescope {

/// Driver callback ids of the calls that change a graph that can be launched.
const std::vector<CUpti_CallbackId>& graph_change_ids();

/// All functions may be called by several threads at once; none asks the driver while another waits.
class GraphKernels {
 public:
  /// `executable` now has the kernels of `graph` and of its child graphs, in the graph's own order.
  void set(const DriverLibrary& driver, CUgraphExec executable, CUgraph graph);
  /// A call that is one of graph_change_ids() has come to its end.
  void change(const DriverLibrary& driver, CUpti_CallbackId id, const CUpti_CallbackData& data);
  void forget(CUgraphExec executable);
  /// None of a graph that nobody told of.
  std::vector<KernelMeasurement> of(CUgraphExec executable);

 private:
  /// A kernel, and the node that stands for it in the graph that the executable was made from.
  struct Node {
    CUgraphNode node;
    KernelMeasurement kernel;
  };
  static void add_nodes(const DriverLibrary& driver, CUgraph graph, std::vector<Node>& nodes);
  void update(const DriverLibrary& driver, CUgraphExec executable, CUgraph graph);
  void set_node(CUgraphExec executable, CUgraphNode node, KernelMeasurement kernel);

  std::mutex mutex_;
  std::map<CUgraphExec, std::vector<Node>> graphs_;
};

}  // namespace tilescope
