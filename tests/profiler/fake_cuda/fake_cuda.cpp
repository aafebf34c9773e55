// SPDX-License-Identifier: Apache-2.0
// The functions of the fake libcuda and libcupti that do something: enough for a program to be injected, to
// make contexts on two devices, to launch kernels and graphs, and to be counted. A CUfunction is a kernel's
// name. TILESCOPE_FAKE_REFUSAL="cuptiSubscribe=39" makes that call return 39; TILESCOPE_FAKE_LOG names a file
// that gets a line for each session that counters are opened and closed in.
#include <cuda.h>
#include <cupti.h>
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
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

int device_of(CUcontext context) {
  return static_cast<int>(reinterpret_cast<char*>(context) - contexts) % fake_cuda::kDevices;
}
CUcontext current_context() { return current.size == 0 ? context_number(0) : current.all[current.size - 1]; }
int current_device() { return device_of(current_context()); }

/// What `function` is asked to return: each time, or with "once" behind it the first time.
CUptiResult refusal(const std::string& function) {
  static std::atomic<bool> refused = false;
  const char* variable = std::getenv("TILESCOPE_FAKE_REFUSAL");
  const std::string asked = variable ? variable : "";
  if (!asked.starts_with(function + "=")) return CUPTI_SUCCESS;
  if (asked.ends_with("once") && refused.exchange(true)) return CUPTI_SUCCESS;
  return static_cast<CUptiResult>(std::atoi(asked.c_str() + function.size() + 1));
}

void note(const std::string& event, int device) {
  if (const char* path = std::getenv("TILESCOPE_FAKE_LOG")) {
    std::ofstream(path, std::ios::app) << event + " " + std::to_string(device) + "\n";
  }
}

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

/// One session of counters; its address is the first thing in its image of data.
struct Session {
  int device = 0;
  std::vector<std::string> ranges;
  bool started = false;
};

Session& session_of(const void* image) {
  Session* session = nullptr;
  std::memcpy(&session, image, sizeof session);
  return *session;
}

/// What a sampler of a device has to give. Its buffer is written behind time: the first records can be read
/// only when it has been asked a few times after the end.
struct Sampler {
  static constexpr int kSamples = 5, kAskedInVain = 3;
  int asked_after_stop = -1;  // -1: it runs
  int given = 0;              // samples, by the last decoding
};
Sampler sampler;

CUpti_GraphData graph_data(CUgraph graph, CUgraphExec executable) {
  CUpti_GraphData data{};
  data.graph = graph;
  data.graphExec = executable;
  return data;
}

CUpti_BuffersCallbackCompleteFunc buffer_completed = nullptr;

}  // namespace

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
  const CUptiResult result = refusal("cuptiSubscribe");
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

CUptiResult cuptiDeviceGetChipName(CUpti_Device_GetChipName_Params* parameters) {
  parameters->pChipName = "GH100";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerGetCounterAvailability(CUpti_Profiler_GetCounterAvailability_Params*) {
  return refusal("cuptiProfilerGetCounterAvailability");
}

CUptiResult cuptiProfilerHostGetSupportedChips(CUpti_Profiler_Host_GetSupportedChips_Params* parameters) {
  static const char* chips[] = {"GH100"};
  parameters->ppChipNames = chips;
  parameters->numChips = 1;
  return CUPTI_SUCCESS;
}

/// The chip has one counter, fake__bytes, and those that TILESCOPE_FAKE_COUNTERS names, with spaces. All are
/// always 64.
CUptiResult cuptiProfilerHostGetBaseMetrics(CUpti_Profiler_Host_GetBaseMetrics_Params* parameters) {
  static const auto& all = *new std::vector<std::string>([] {
    const char* more = std::getenv("TILESCOPE_FAKE_COUNTERS");
    std::istringstream words(std::string("fake__bytes ") + (more ? more : ""));
    return std::vector<std::string>(std::istream_iterator<std::string>(words), {});
  }());
  static std::vector<const char*> names = [] {
    std::vector<const char*> texts;
    for (const std::string& name : all) texts.push_back(name.c_str());
    return texts;
  }();
  parameters->ppMetricNames = names.data();
  parameters->numMetrics = parameters->metricType == CUPTI_METRIC_TYPE_COUNTER ? names.size() : 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostGetNumOfPasses(CUpti_Profiler_Host_GetNumOfPasses_Params* parameters) {
  parameters->numOfPasses = 1;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiProfilerHostEvaluateToGpuValues(CUpti_Profiler_Host_EvaluateToGpuValues_Params* parameters) {
  std::fill_n(parameters->pMetricValues, parameters->numMetrics, 64.0);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerEnable(CUpti_RangeProfiler_Enable_Params* parameters) {
  auto* session = new Session{device_of(parameters->ctx), {}, false};
  note("enable", session->device);
  parameters->pRangeProfilerObject = reinterpret_cast<CUpti_RangeProfiler_Object*>(session);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerDisable(CUpti_RangeProfiler_Disable_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  note("disable", session->device);
  delete session;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerGetCounterDataSize(CUpti_RangeProfiler_GetCounterDataSize_Params* parameters) {
  parameters->counterDataSize = sizeof(Session*);
  return refusal("cuptiRangeProfilerGetCounterDataSize");
}

CUptiResult cuptiRangeProfilerCounterDataImageInitialize(
    CUpti_RangeProfiler_CounterDataImage_Initialize_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  session->ranges.clear();
  std::memcpy(parameters->pCounterData, &session, sizeof session);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerStart(CUpti_RangeProfiler_Start_Params* parameters) {
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  return std::exchange(session->started, true) ? CUPTI_ERROR_INVALID_OPERATION : CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerPushRange(CUpti_RangeProfiler_PushRange_Params* parameters) {
  reinterpret_cast<Session*>(parameters->pRangeProfilerObject)->ranges.emplace_back(parameters->pRangeName);
  return CUPTI_SUCCESS;
}

/// TILESCOPE_FAKE_ENDLESS: there is always another pass to come.
CUptiResult cuptiRangeProfilerStop(CUpti_RangeProfiler_Stop_Params* parameters) {
  parameters->isAllPassSubmitted = std::getenv("TILESCOPE_FAKE_ENDLESS") == nullptr;
  auto* session = reinterpret_cast<Session*>(parameters->pRangeProfilerObject);
  return std::exchange(session->started, false) ? refusal("cuptiRangeProfilerStop")
                                                : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiRangeProfilerGetCounterDataInfo(CUpti_RangeProfiler_GetCounterDataInfo_Params* parameters) {
  parameters->numTotalRanges = session_of(parameters->pCounterDataImage).ranges.size();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiRangeProfilerCounterDataGetRangeInfo(
    CUpti_RangeProfiler_CounterData_GetRangeInfo_Params* parameters) {
  parameters->rangeName = session_of(parameters->pCounterDataImage).ranges.at(parameters->rangeIndex).c_str();
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

CUptiResult cuptiPmSamplingEnable(CUpti_PmSampling_Enable_Params* parameters) {
  sampler = {};
  parameters->pPmSamplingObject = reinterpret_cast<CUpti_PmSampling_Object*>(&sampler);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingStop(CUpti_PmSampling_Stop_Params*) {
  sampler.asked_after_stop = 0;
  return CUPTI_SUCCESS;
}

/// TILESCOPE_FAKE_SILENT: the sampler never has anything to give.
CUptiResult cuptiPmSamplingDecodeData(CUpti_PmSampling_DecodeData_Params* parameters) {
  parameters->decodeStopReason = CUPTI_PM_SAMPLING_DECODE_STOP_REASON_END_OF_RECORDS;
  const bool written = sampler.asked_after_stop == Sampler::kAskedInVain;
  if (sampler.asked_after_stop >= 0) ++sampler.asked_after_stop;
  sampler.given = written && !std::getenv("TILESCOPE_FAKE_SILENT") ? Sampler::kSamples : 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiPmSamplingGetCounterDataInfo(CUpti_PmSampling_GetCounterDataInfo_Params* parameters) {
  parameters->numCompletedSamples = static_cast<std::size_t>(sampler.given);
  return CUPTI_SUCCESS;
}

/// Of 0.16 ms each, behind a first one that reaches back for a second.
CUptiResult cuptiPmSamplingCounterDataGetSampleInfo(
    CUpti_PmSampling_CounterData_GetSampleInfo_Params* parameters) {
  constexpr std::uint64_t kFirst_ns = 1'000'000'000, kOther_ns = 160'000;
  const std::uint64_t before = parameters->sampleIndex;
  parameters->startTimestamp = before == 0 ? 0 : kFirst_ns + (before - 1) * kOther_ns;
  parameters->endTimestamp = kFirst_ns + before * kOther_ns;
  return CUPTI_SUCCESS;
}

}  // extern "C"
