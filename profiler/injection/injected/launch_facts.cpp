// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/launch_facts.hpp"

#include "common/demangle.hpp"

namespace tilescope {
namespace {

template <class Parameters>
LaunchFacts geometry(const Parameters& p) {
  LaunchFacts facts;
  facts.grid = {p.gridDimX, p.gridDimY, p.gridDimZ};
  facts.block = {p.blockDimX, p.blockDimY, p.blockDimZ};
  facts.shared_bytes = p.sharedMemBytes;
  return facts;
}

template <class Parameters>
LaunchCall plain_launch(const void* parameters) {
  const auto& p = *static_cast<const Parameters*>(parameters);
  return {p.f, nullptr, p.hStream, geometry(p)};
}

LaunchCall extended_launch(const void* parameters) {
  const auto& p = *static_cast<const cuLaunchKernelEx_params*>(parameters);
  LaunchCall call{p.f, nullptr, p.config->hStream, geometry(*p.config)};
  for (unsigned i = 0; i < p.config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = p.config->attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& cluster = attribute.value.clusterDim;
    call.facts.cluster = {{cluster.x, cluster.y, cluster.z}};
  }
  return call;
}

LaunchCall graph_launch(const void* parameters) {
  const auto& p = *static_cast<const cuGraphLaunch_params*>(parameters);
  return {nullptr, p.hGraph, p.hStream, {}};
}

/// In the _ptsz calls stream 0 is the thread's own.
LaunchCall with_thread_stream(LaunchCall call) {
  if (!call.stream) call.stream = CU_STREAM_PER_THREAD;
  return call;
}

/// A launch accepts a CUkernel in the place of a CUfunction; attributes can only be asked of the latter.
CUfunction as_function(const DriverLibrary& driver, CUfunction handle) {
  int ignored = 0;
  if (driver.cuFuncGetAttribute(&ignored, CU_FUNC_ATTRIBUTE_NUM_REGS, handle) == CUDA_SUCCESS) return handle;
  CUfunction function = nullptr;
  const auto status = driver.cuKernelGetFunction(&function, reinterpret_cast<CUkernel>(handle));
  return status == CUDA_SUCCESS ? function : nullptr;
}

}  // namespace

const std::vector<CUpti_CallbackId>& launch_callback_ids() {
  static const std::vector<CUpti_CallbackId> ids = {
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz,
      CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
      CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz,
  };
  return ids;
}

LaunchCall read_launch_call(CUpti_CallbackId id, const void* parameters) {
  switch (id) {
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      return plain_launch<cuLaunchKernel_params>(parameters);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
      return with_thread_stream(plain_launch<cuLaunchKernel_ptsz_params>(parameters));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
      return extended_launch(parameters);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
      return with_thread_stream(extended_launch(parameters));
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
      return plain_launch<cuLaunchCooperativeKernel_params>(parameters);
    case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
      return with_thread_stream(plain_launch<cuLaunchCooperativeKernel_ptsz_params>(parameters));
    case CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch:
      return graph_launch(parameters);
    default:
      return with_thread_stream(graph_launch(parameters));
  }
}

void add_function_facts(const DriverLibrary& driver, CUfunction handle, LaunchFacts& facts) {
  const CUfunction function = as_function(driver, handle);
  if (!function) return;
  const auto ask = [&](CUfunction_attribute attribute) -> std::optional<std::int64_t> {
    int value = 0;
    if (driver.cuFuncGetAttribute(&value, attribute, function) != CUDA_SUCCESS) return std::nullopt;
    return value;
  };
  facts.registers = ask(CU_FUNC_ATTRIBUTE_NUM_REGS);
  facts.local_bytes = ask(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  const auto static_shared = ask(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
  if (static_shared) facts.shared_bytes = *static_shared + facts.shared_bytes.value_or(0);
  const auto width = ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH);
  const auto height = ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT);
  const auto depth = ask(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH);
  if (!facts.cluster && width && height && depth && *width > 0) facts.cluster = {{*width, *height, *depth}};
}

namespace {

/// @param function  nullptr: of `kernel`
template <class Parameters>
KernelMeasurement node_facts(const DriverLibrary& driver, const Parameters& parameters, CUfunction function,
                             CUkernel kernel) {
  if (!function) TILESCOPE_DRIVER_CALL(driver, cuKernelGetFunction, &function, kernel);
  const char* name = nullptr;
  TILESCOPE_DRIVER_CALL(driver, cuFuncGetName, &name, function);
  KernelMeasurement measurement{demangle(name), geometry(parameters), {}, {}, {}};
  add_function_facts(driver, function, measurement.launch);
  return measurement;
}

}  // namespace

KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v1& parameters) {
  return node_facts(driver, parameters, parameters.func, nullptr);
}
KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v2& parameters) {
  return node_facts(driver, parameters, parameters.func, parameters.kern);
}
KernelMeasurement kernel_of_node(const DriverLibrary& driver, const CUDA_KERNEL_NODE_PARAMS_v3& parameters) {
  return node_facts(driver, parameters, parameters.func, parameters.kern);
}

}  // namespace tilescope
