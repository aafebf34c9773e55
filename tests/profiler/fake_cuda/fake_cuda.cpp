// SPDX-License-Identifier: Apache-2.0
// The functions of the fake libcuda that do something, and who is told of them: enough for a program to be
// injected, to make contexts on two devices, and to launch kernels and graphs. A CUfunction is a kernel's
// name.
#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/profiler/fake_cuda/fake_cuda.hpp"

namespace {

CUpti_CallbackFunc subscriber = nullptr;
void* subscriber_data = nullptr;

struct FakeDevice {
  std::atomic<int> collectives = 0;  // launched so far; each ends when the other device has launched as many
  std::atomic<bool> hangs = false;   // in a kernel that never ends
};
FakeDevice devices[fake_cuda::kDevices];
/// Handles of contexts: the primary ones, then a second one of each device.
char contexts[2 * fake_cuda::kDevices];

CUcontext context_number(int number) { return reinterpret_cast<CUcontext>(&contexts[number]); }

/// Contexts that were made current. Plain data: exit handlers use it after the destructors of the thread have
/// run.
struct ContextStack {
  CUcontext all[64];
  int size;
};
thread_local ContextStack current{};

CUcontext current_context() { return current.size == 0 ? context_number(0) : current.all[current.size - 1]; }
int current_device() { return fake_cuda::device_of(current_context()); }

void tell(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (subscriber) subscriber(subscriber_data, domain, id, data);
}

void tell_made(CUcontext context) {
  CUpti_ResourceData data{};
  data.context = context;
  tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_CONTEXT_CREATED, &data);
}

/// Runs `call` between the two callbacks of a driver call.
template <class Parameters, class Call>
CUresult between_callbacks(CUpti_CallbackId id, const char* symbol, const Parameters& parameters, Call call) {
  CUresult status = CUDA_SUCCESS;
  CUpti_CallbackData data{};
  data.context = current_context();
  data.symbolName = symbol;
  data.functionParams = &parameters;
  data.functionReturnValue = &status;
  data.callbackSite = CUPTI_API_ENTER;
  tell(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  call();
  data.callbackSite = CUPTI_API_EXIT;
  tell(CUPTI_CB_DOMAIN_DRIVER_API, id, &data);
  return status;
}

void start_kernel(std::string_view name) {
  FakeDevice& device = devices[current_device()];
  if (name.starts_with("nccl")) ++device.collectives;
  if (name == fake_cuda::kEndless) device.hangs = true;
}

CUpti_GraphData graph_data(CUgraph graph, CUgraphExec executable) {
  CUpti_GraphData data{};
  data.graph = graph;
  data.graphExec = executable;
  return data;
}

CUpti_BuffersCallbackCompleteFunc buffer_completed = nullptr;

}  // namespace

int fake_cuda::device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) - contexts) % fake_cuda::kDevices;
}

CUptiResult fake_cuda::refusal(const std::string& function) {
  static std::atomic<bool> refused = false;
  const char* variable = std::getenv("TILESCOPE_FAKE_REFUSAL");
  const std::string asked = variable ? variable : "";
  if (!asked.starts_with(function + "=")) return CUPTI_SUCCESS;
  if (asked.ends_with("once") && refused.exchange(true)) return CUPTI_SUCCESS;
  return static_cast<CUptiResult>(std::atoi(asked.c_str() + function.size() + 1));
}

CUcontext fake_cuda::second_context(int device) {
  const CUcontext made = context_number(kDevices + device);
  tell_made(made);
  return made;
}

extern "C" {

/// Hands an empty buffer of activity records to whoever asked for them, as a thread of CUPTI's does.
void tilescope_fake_complete_buffer() { buffer_completed(nullptr, 0, nullptr, 0, 0); }

CUresult cuInit(unsigned) {
  static bool injected = false;
  const char* library = std::getenv("CUDA_INJECTION64_PATH");
  if (injected || !library) return CUDA_SUCCESS;
  injected = true;
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  const auto initialize =
      handle ? reinterpret_cast<int (*)()>(dlsym(handle, "InitializeInjection")) : nullptr;
  if (initialize) initialize();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice device) {
  *made = context_number(device);
  tell_made(*made);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current.size == 0 ? nullptr : current_context();
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  if (current.size == std::ssize(current.all)) return CUDA_ERROR_OUT_OF_MEMORY;
  current.all[current.size++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* popped) {
  if (current.size == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *popped = current.all[--current.size];
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize() {
  const int own = current_device();
  const auto busy = [own] {
    return devices[own].hangs || devices[own].collectives > devices[1 - own].collectives;
  };
  while (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** arguments, void** extra) {
  const cuLaunchKernel_params parameters{function, grid_x,       grid_y, grid_z,    block_x, block_y,
                                         block_z,  shared_bytes, stream, arguments, extra};
  const char* name = function ? reinterpret_cast<const char*>(function) : "fake_kernel";
  return between_callbacks(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, name, parameters,
                           [name] { start_kernel(name); });
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  *name = reinterpret_cast<const char*>(function);
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  auto& kernels = reinterpret_cast<fake_cuda::Graph*>(graph)->kernels;
  for (std::size_t i = 0; nodes && i < *count; ++i) nodes[i] = reinterpret_cast<CUgraphNode>(&kernels[i]);
  *count = kernels.size();
  return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode, CUgraphNodeType* type) {
  *type = CU_GRAPH_NODE_TYPE_KERNEL;
  return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  parameters->func = reinterpret_cast<CUfunction>(const_cast<char*>(*reinterpret_cast<const char**>(node)));
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  auto* made_from = reinterpret_cast<fake_cuda::Graph*>(graph);
  *executable = reinterpret_cast<CUgraphExec>(new fake_cuda::Graph{made_from->kernels, made_from});
  CUpti_GraphData graph_facts = graph_data(graph, *executable);
  CUpti_ResourceData data{};
  data.resourceDescriptor = &graph_facts;
  tell(CUPTI_CB_DOMAIN_RESOURCE, CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, &data);
  return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  const cuGraphExecUpdate_v2_params parameters{executable, graph, result};
  return between_callbacks(CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2, nullptr, parameters, [&] {
    reinterpret_cast<fake_cuda::Graph*>(executable)->kernels =
        reinterpret_cast<fake_cuda::Graph*>(graph)->kernels;
  });
}

/// The node is of the graph that the executable was made from.
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec executable, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS* kernel) {
  const cuGraphExecKernelNodeSetParams_v2_params parameters{executable, node, kernel};
  return between_callbacks(
      CUPTI_DRIVER_TRACE_CBID_cuGraphExecKernelNodeSetParams_v2, nullptr, parameters, [&] {
        auto& graph = *reinterpret_cast<fake_cuda::Graph*>(executable);
        const auto place = reinterpret_cast<const char* const*>(node) - graph.made_from->kernels.data();
        graph.kernels[static_cast<std::size_t>(place)] = reinterpret_cast<const char*>(kernel->func);
      });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  const cuGraphLaunch_params parameters{executable, stream};
  return between_callbacks(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, nullptr, parameters, [executable] {
    for (const char* name : reinterpret_cast<fake_cuda::Graph*>(executable)->kernels) start_kernel(name);
  });
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* data) {
  const CUptiResult result = fake_cuda::refusal("cuptiSubscribe");
  if (result != CUPTI_SUCCESS) return result;
  subscriber = callback;
  subscriber_data = data;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&subscriber);
  return result;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  subscriber = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc,
                                           CUpti_BuffersCallbackCompleteFunc completed) {
  buffer_completed = completed;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(std::uint8_t*, std::size_t, CUpti_Activity**) {
  return CUPTI_ERROR_MAX_LIMIT_REACHED;
}

}  // extern "C"
