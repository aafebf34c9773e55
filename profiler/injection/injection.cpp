// SPDX-License-Identifier: Apache-2.0
// libtilescope_inject.so: the CUDA driver loads it into every process that has CUDA_INJECTION64_PATH set, and
// calls InitializeInjection inside cuInit. Nothing that goes wrong in here may reach the process.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "profiler/injection/context_counters.hpp"
#include "profiler/injection/launch_facts.hpp"
#include "profiler/injection/launch_filter.hpp"
#include "profiler/injection/nvtx_ranges.hpp"
#include "profiler/timing/activity_trace.hpp"

namespace tilescope {
namespace {

/// A device's launches, one at a time: ranges and names are joined by their order, and a device lends its
/// counters to one context at a time. Devices do not wait for each other here, since their kernels may.
struct DeviceLaunches {
  std::recursive_timed_mutex mutex;
  std::map<CUcontext, std::unique_ptr<ContextCounters>> contexts;  // empty pointer: no counters there
};

/// The launch of this thread that is under way; from its beginning to its end the thread holds its device's
/// lock.
struct LaunchUnderWay {
  int depth = 0;                        // calls that have begun: some launch through others
  DeviceLaunches* device = nullptr;     // null for a context that we were not told of
  ContextCounters* counters = nullptr;  // that stand round it, if any do
};

class Injection {
 public:
  explicit Injection(ProfileRequest request)
      : request_(std::move(request)), filter_(request_), file_(request_.folder) {}

  /// Subscribes to what the request needs. What cannot be had is said in the file.
  void begin();
  /// The process is about to end.
  void finish();
  /// In a child of fork(): CUDA does not work there, and the file belongs to the parent.
  void abandon() { abandoned_ = true; }

 private:
  static void CUPTIAPI callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                                const void* data);
  void on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data);
  void on_launch(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void on_graph_update(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void after_launch(const CUpti_CallbackData& data);

  void subscribe();
  void add_context(CUcontext context);
  void remove_context(CUcontext context);
  DeviceLaunches* device_of(CUcontext context);
  void set_graph(CUgraphExec executable, CUgraph graph);
  std::vector<KernelMeasurement> kernels_of(const LaunchCall& call, const CUpti_CallbackData& data);
  /// Marks those that are wanted, and counts them.
  std::vector<LaunchedKernel> choose(std::vector<KernelMeasurement> kernels);
  bool all_measured();
  bool is_captured(CUstream stream) const;
  void give_up_counters(DeviceLaunches& device, CUcontext context, const std::string& why);
  void add_losses(const ContextCounters& counters);

  ProfileRequest request_;
  std::mutex mutex_;  // of what follows up to the file; never held while a device or the driver is waited for
  LaunchFilter filter_;
  std::map<CUdevice, DeviceLaunches> devices_;
  std::map<CUcontext, DeviceLaunches*> device_of_;
  std::map<CUgraphExec, std::vector<KernelMeasurement>> graphs_;
  std::set<std::string> left_out_;  // kernels that were said to be left out
  EventFile file_;
  std::mutex setup_mutex_;  // one context at a time is given counters
  std::shared_ptr<const CuptiLibrary> cupti_;
  std::shared_ptr<const DriverLibrary> driver_;
  std::unique_ptr<ActivityTrace> trace_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  // Launches without the counters that they should have, and those of them inside graphs.
  std::atomic<std::int64_t> lost_ = 0, lost_in_graphs_ = 0;
  std::atomic<bool> abandoned_ = false;
};

constexpr std::chrono::seconds kLongestWait{10};

constexpr CUpti_CallbackId kGraphUpdateIds[] = {CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate,
                                                CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate_v2};

/// Whether this thread is inside a callback: what we call ourselves is nobody's launch.
thread_local bool inside_callback = false;
thread_local LaunchUnderWay under_way;

/// C interfaces without user data need the one object from here.
Injection*& instance() {
  static Injection* injection = nullptr;
  return injection;
}

/// Of this process. NVTX may be used before CUDA is, so that the ranges are not the injection's.
NvtxRanges& nvtx_ranges() {
  static NvtxRanges& ranges =
      *new NvtxRanges(request_from_environment().value_or(ProfileRequest{}).nvtx_filter);
  return ranges;
}

void Injection::begin() {
  try {
    cupti_ = CuptiLibrary::load();
    driver_ = DriverLibrary::load();
    if (request_.what == ProfileRequest::What::trace) {
      trace_ = std::make_unique<ActivityTrace>(cupti_, [this](const KernelMeasurement& kernel) {
        for (const LaunchedKernel& one : choose({kernel})) {
          if (one.wanted) file_.kernel(one.kernel);
        }
      });
    } else {
      subscribe();
    }
  } catch (const std::exception& error) {
    file_.message(error.what());
  }
}

void Injection::subscribe() {
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiSubscribe, &subscriber_, callback, this);
  std::vector<CUpti_CallbackId> calls = launch_callback_ids();
  calls.insert(calls.end(), std::begin(kGraphUpdateIds), std::end(kGraphUpdateIds));
  for (const CUpti_CallbackId id : calls) {
    TILESCOPE_CUPTI_CALL(*cupti_, cuptiEnableCallback, 1, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
  }
  for (const CUpti_CallbackId id :
       {CUPTI_CBID_RESOURCE_CONTEXT_CREATED, CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING,
        CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED, CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING}) {
    TILESCOPE_CUPTI_CALL(*cupti_, cuptiEnableCallback, 1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, id);
  }
}

void Injection::callback(void* self, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  auto& injection = *static_cast<Injection*>(self);
  if (inside_callback || injection.abandoned_) return;
  inside_callback = true;
  try {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      injection.on_resource(id, *static_cast<const CUpti_ResourceData*>(data));
    } else if (std::find(std::begin(kGraphUpdateIds), std::end(kGraphUpdateIds), id) !=
               std::end(kGraphUpdateIds)) {
      injection.on_graph_update(id, *static_cast<const CUpti_CallbackData*>(data));
    } else {
      injection.on_launch(id, *static_cast<const CUpti_CallbackData*>(data));
    }
  } catch (const std::exception& error) {
    injection.file_.message(error.what());
  }
  inside_callback = false;
}

void Injection::on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) {
  const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
  switch (id) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      return add_context(data.context);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return remove_context(data.context);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
      return set_graph(graph->graphExec, graph->graph);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING: {
      const std::lock_guard lock(mutex_);
      graphs_.erase(graph->graphExec);
      return;
    }
    default:
      return;
  }
}

void Injection::set_graph(CUgraphExec executable, CUgraph graph) {
  std::vector<KernelMeasurement> kernels = kernels_of_graph(*driver_, graph);
  const std::lock_guard lock(mutex_);
  graphs_[executable] = std::move(kernels);
}

void Injection::on_graph_update(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const auto* status = static_cast<const CUresult*>(data.functionReturnValue);
  if (data.callbackSite != CUPTI_API_EXIT || !status || *status != CUDA_SUCCESS) return;
  if (id == CUPTI_DRIVER_TRACE_CBID_cuGraphExecUpdate) {
    const auto& p = *static_cast<const cuGraphExecUpdate_params*>(data.functionParams);
    set_graph(p.hGraphExec, p.hGraph);
  } else {
    const auto& p = *static_cast<const cuGraphExecUpdate_v2_params*>(data.functionParams);
    set_graph(p.hGraphExec, p.hGraph);
  }
}

/// Lets the counters go that other contexts of the device hold.
void suspend_others(const DeviceLaunches& device, CUcontext context) {
  for (const auto& [other, counters] : device.contexts) {
    if (other != context && counters) counters->suspend();
  }
}

DeviceLaunches* Injection::device_of(CUcontext context) {
  const std::lock_guard lock(mutex_);
  const auto entry = device_of_.find(context);
  return entry == device_of_.end() ? nullptr : entry->second;
}

/// Makes a context current as long as it lives.
class Current {
 public:
  Current(const DriverLibrary& driver, CUcontext context) : driver_(driver) {
    TILESCOPE_DRIVER_CALL(driver_, cuCtxPushCurrent, context);
  }
  ~Current() {
    CUcontext popped = nullptr;
    driver_.cuCtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const DriverLibrary& driver_;
};

void Injection::add_context(CUcontext context) {
  const Current current(*driver_, context);
  CUdevice number = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxGetDevice, &number);
  DeviceLaunches* device = nullptr;
  {
    const std::lock_guard lock(mutex_);
    device = device_of_[context] = &devices_[number];
  }
  const std::lock_guard launches(device->mutex);
  device->contexts[context] = nullptr;
  suspend_others(*device, context);
  const std::lock_guard setup(setup_mutex_);
  auto counters = std::make_unique<ContextCounters>(
      cupti_, driver_, context, request_, [this](const KernelMeasurement& kernel) { file_.kernel(kernel); });
  file_.collection(counters->facts());
  const std::string missing = counters->missing_metrics();
  if (!missing.empty()) file_.message(counters->facts().chip + " has no counters for " + missing);
  device->contexts[context] = std::move(counters);
}

void Injection::remove_context(CUcontext context) {
  DeviceLaunches* const device = device_of(context);
  if (!device) return;
  {
    const std::lock_guard lock(mutex_);
    device_of_.erase(context);
  }
  const std::lock_guard launches(device->mutex);
  const std::unique_ptr<ContextCounters> counters = std::move(device->contexts[context]);
  device->contexts.erase(context);
  if (!counters) return;
  const Current current(*driver_, context);
  try {
    counters->flush();
  } catch (const std::exception& error) {
    file_.message(error.what());
    counters->abandon();
  }
  add_losses(*counters);
}

void Injection::give_up_counters(DeviceLaunches& device, CUcontext context, const std::string& why) {
  file_.message(why);
  ContextCounters& counters = *device.contexts[context];
  counters.abandon();
  add_losses(counters);
  device.contexts[context] = nullptr;
}

void Injection::add_losses(const ContextCounters& counters) {
  lost_ += counters.lost();
  lost_in_graphs_ += counters.lost_in_graphs();
}

void Injection::on_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (data.callbackSite == CUPTI_API_ENTER) {
    if (under_way.depth++ > 0) return;
    under_way.counters = nullptr;
    under_way.device = device_of(data.context);
    if (under_way.device) under_way.device->mutex.lock();
    before_launch(id, data);
  } else if (under_way.depth > 0 && --under_way.depth == 0) {
    std::unique_lock<std::recursive_timed_mutex> unlock;
    if (under_way.device) unlock = {under_way.device->mutex, std::adopt_lock};
    after_launch(data);
  }
}

bool Injection::is_captured(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool Injection::all_measured() {
  const std::lock_guard lock(mutex_);
  return filter_.done();
}

std::vector<KernelMeasurement> Injection::kernels_of(const LaunchCall& call, const CUpti_CallbackData& data) {
  if (call.graph) {
    const std::lock_guard lock(mutex_);
    const auto graph = graphs_.find(call.graph);
    return graph == graphs_.end() ? std::vector<KernelMeasurement>{} : graph->second;
  }
  KernelMeasurement kernel{demangle(data.symbolName ? data.symbolName : "?"), call.facts, {}, {}, {}};
  add_function_facts(*driver_, call.function, kernel.launch);
  return {std::move(kernel)};
}

std::vector<LaunchedKernel> Injection::choose(std::vector<KernelMeasurement> kernels) {
  const std::lock_guard lock(mutex_);
  // A graph with communication in it waits for other devices as a whole.
  bool waits = false;
  for (const KernelMeasurement& kernel : kernels) {
    if (!filter_.leaves_out(kernel.name)) continue;
    waits = true;
    if (!left_out_.insert(kernel.name).second) continue;
    file_.message("left out, as it waits for other devices: " + kernel.name +
                  (kernels.size() > 1 ? ", and the graph that it is in" : "") +
                  " (--communication measures it)");
  }
  std::vector<LaunchedKernel> launched;
  for (KernelMeasurement& kernel : kernels) {
    const bool wanted = !waits && nvtx_ranges().inside() && filter_.wants(kernel.name);
    launched.push_back({std::move(kernel), wanted});
  }
  return launched;
}

void Injection::before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (all_measured()) return;
  const LaunchCall call = read_launch_call(id, data.functionParams);
  if (is_captured(call.stream)) return;  // it will run when its graph is launched
  std::vector<LaunchedKernel> launched = choose(kernels_of(call, data));
  const bool wanted =
      std::any_of(launched.begin(), launched.end(), [](const LaunchedKernel& one) { return one.wanted; });
  ContextCounters* const counters =
      under_way.device ? under_way.device->contexts[data.context].get() : nullptr;
  if (!counters) {
    for (const LaunchedKernel& one : launched) {
      if (one.wanted) file_.kernel(one.kernel);
    }
    return;
  }
  try {
    if (!wanted) return counters->pause();
    suspend_others(*under_way.device, data.context);
    counters->before(std::move(launched), call.graph != nullptr);
    under_way.counters = counters;
  } catch (const std::exception& error) {
    give_up_counters(*under_way.device, data.context, error.what());
  }
}

void Injection::after_launch(const CUpti_CallbackData& data) {
  if (!under_way.counters) return;
  const auto* status = static_cast<const CUresult*>(data.functionReturnValue);
  try {
    under_way.counters->after(status && *status == CUDA_SUCCESS);
    if (all_measured()) under_way.counters->flush();
  } catch (const std::exception& error) {
    give_up_counters(*under_way.device, data.context, error.what());
  }
}

void Injection::finish() {
  if (abandoned_) return;
  inside_callback = true;  // exit handlers of the process may still launch; nobody counts those
  bool whole = true;
  try {
    if (trace_) trace_->flush();
    for (auto& [number, device] : devices_) {
      const std::unique_lock lock(device.mutex, kLongestWait);
      if (!lock) {
        file_.message("a launch was still under way at the end; its counters are lost");
        whole = false;
        continue;
      }
      while (!device.contexts.empty()) remove_context(device.contexts.begin()->first);
    }
    if (lost_ > 0) file_.message(std::to_string(lost_) + " launches lost their counters");
    if (lost_in_graphs_ > 0) {
      file_.message(
          "kernel replay counted nothing of CUDA graphs: use --replay application, or metrics that fit in "
          "one pass");
    }
    if (whole && lost_ == 0) file_.end();
  } catch (const std::exception& error) {
    file_.message(error.what());
  }
}

}  // namespace
}  // namespace tilescope

/// Called by NVTX at its first use in each library of the process. Returns 1 if its ranges will be heard.
extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    const void* (*get_export_table)(std::uint32_t)) {
  try {
    return tilescope::connect_nvtx(get_export_table, tilescope::nvtx_ranges()) ? 1 : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

/// Called by the CUDA driver. Returns 1 whatever happens: the process must run.
extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  using namespace tilescope;
  try {
    const auto request = request_from_environment();
    if (!request || instance()) return 1;
    instance() = new Injection(*request);  // never deleted: callbacks may come until the very end
    instance()->begin();
    std::atexit([] { instance()->finish(); });
    pthread_atfork(nullptr, nullptr, [] { instance()->abandon(); });
  } catch (const std::exception&) {
    return 1;  // there is nowhere to say it
  }
  return 1;
}
