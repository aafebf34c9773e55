// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/graph_kernels.hpp"

#include <algorithm>
#include <utility>

#include "profiler/injection/injected/launch_facts.hpp"

namespace tilescope {

const std::vector<CUpti_CallbackId>& graph_change_ids() {
  static const std::vector<CUpti_CallbackId> ids = {
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2,
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams,
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2,
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams,
  };
  return ids;
}

void GraphKernels::add_nodes(const DriverLibrary& driver, CUgraph graph, std::vector<Node>& nodes) {
  std::size_t count = 0;
  TILESCOPE_DRIVER_CALL(driver, cuGraphGetNodes, graph, nullptr, &count);
  std::vector<CUgraphNode> all(count);
  TILESCOPE_DRIVER_CALL(driver, cuGraphGetNodes, graph, all.data(), &count);
  for (const CUgraphNode node : all) {
    CUgraphNodeType type{};
    TILESCOPE_DRIVER_CALL(driver, cuGraphNodeGetType, node, &type);
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      TILESCOPE_DRIVER_CALL(driver, cuGraphChildGraphNodeGetGraph, node, &child);
      add_nodes(driver, child, nodes);
    } else if (type == CU_GRAPH_NODE_TYPE_KERNEL) {
      CUDA_KERNEL_NODE_PARAMS parameters{};
      TILESCOPE_DRIVER_CALL(driver, cuGraphKernelNodeGetParams, node, &parameters);
      nodes.push_back({node, kernel_of_node(driver, parameters)});
    }
  }
}

void GraphKernels::set(const DriverLibrary& driver, CUgraphExec executable, CUgraph graph) {
  std::vector<Node> nodes;
  add_nodes(driver, graph, nodes);
  const std::lock_guard lock(mutex_);
  graphs_[executable] = std::move(nodes);
}

/// The nodes that later calls name are still those of the graph that the executable was made from.
void GraphKernels::update(const DriverLibrary& driver, CUgraphExec executable, CUgraph graph) {
  std::vector<Node> nodes;
  add_nodes(driver, graph, nodes);
  const std::lock_guard lock(mutex_);
  std::vector<Node>& known = graphs_[executable];
  if (known.size() == nodes.size()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i].node = known[i].node;
  }
  known = std::move(nodes);
}

void GraphKernels::set_node(CUgraphExec executable, CUgraphNode node, KernelMeasurement kernel) {
  const std::lock_guard lock(mutex_);
  std::vector<Node>& nodes = graphs_[executable];
  const auto changed = std::ranges::find(nodes, node, &Node::node);
  if (changed != nodes.end()) changed->kernel = std::move(kernel);
}

void GraphKernels::change(const DriverLibrary& driver, CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const auto* status = static_cast<const CUresult*>(data.functionReturnValue);
  if (data.callbackSite != CUPTI_API_EXIT || !status || *status != CUDA_SUCCESS) return;
  const auto set_to = [&](const auto& call, const auto& parameters) {
    set_node(call.hGraphExec, call.hNode, kernel_of_node(driver, parameters));
  };
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate: {
      const auto& p = *static_cast<const cuGraphExecUpdate_params*>(data.functionParams);
      return update(driver, p.hGraphExec, p.hGraph);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2: {
      const auto& p = *static_cast<const cuGraphExecUpdate_v2_params*>(data.functionParams);
      return update(driver, p.hGraphExec, p.hGraph);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams: {
      const auto& p = *static_cast<const cuGraphExecKernelNodeSetParams_params*>(data.functionParams);
      return set_to(p, *p.nodeParams);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2: {
      const auto& p = *static_cast<const cuGraphExecKernelNodeSetParams_v2_params*>(data.functionParams);
      return set_to(p, *p.nodeParams);
    }
    case CUPTI_DRIVER_TRACE_CBID_cuGraphExecNodeSetParams: {
      const auto& p = *static_cast<const cuGraphExecNodeSetParams_params*>(data.functionParams);
      if (p.nodeParams->type == CU_GRAPH_NODE_TYPE_KERNEL) set_to(p, p.nodeParams->kernel);
      return;
    }
    default:
      return;
  }
}

void GraphKernels::forget(CUgraphExec executable) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(executable);
}

std::vector<KernelMeasurement> GraphKernels::of(CUgraphExec executable) {
  const std::lock_guard lock(mutex_);
  std::vector<KernelMeasurement> kernels;
  const auto graph = graphs_.find(executable);
  if (graph == graphs_.end()) return kernels;
  for (const Node& node : graph->second) kernels.push_back(node.kernel);
  return kernels;
}

}  // namespace tilescope
