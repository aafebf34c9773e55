// SPDX-License-Identifier: Apache-2.0
// libtilescope_inject.so: the CUDA driver loads it into every process that has CUDA_INJECTION64_PATH set, and
// calls InitializeInjection inside cuInit. Nothing that goes wrong in here may reach the process.
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>

#include "profiler/injection/context_counters.hpp"
#include "profiler/injection/launch_facts.hpp"
#include "profiler/injection/launch_filter.hpp"
#include "profiler/injection/nvtx_ranges.hpp"
#include "profiler/timing/activity_trace.hpp"

namespace tilescope {
namespace {

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
  void before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data);
  void after_launch(const CUpti_CallbackData& data);

  void subscribe();
  void add_context(CUcontext context);
  void remove_context(CUcontext context);
  /// Lets the counters go that other contexts hold.
  void suspend_others(CUcontext context);
  std::vector<KernelMeasurement> kernels_of(const LaunchCall& call, const CUpti_CallbackData& data);
  bool is_captured(CUstream stream) const;
  void give_up_counters(CUcontext context, const std::string& why);
  void add_losses(const ContextCounters& counters);

  ProfileRequest request_;
  LaunchFilter filter_;
  EventFile file_;
  std::shared_ptr<const CuptiLibrary> cupti_;
  std::shared_ptr<const DriverLibrary> driver_;
  std::unique_ptr<ActivityTrace> trace_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  // Ranges and names are joined by their order, so that only one launch at a time may be under way.
  std::recursive_timed_mutex mutex_;
  std::map<CUcontext, std::unique_ptr<ContextCounters>> contexts_;  // empty pointer: no counters there
  std::map<CUgraphExec, std::vector<KernelMeasurement>> graphs_;
  ContextCounters* under_way_ = nullptr;
  // Launches without the counters that they should have, and those of them inside graphs.
  std::int64_t lost_ = 0, lost_in_graphs_ = 0;
  std::atomic<bool> abandoned_ = false;
};

constexpr std::chrono::seconds kLongestWait{10};

/// Whether this thread is inside a callback: what we call ourselves is nobody's launch.
thread_local bool inside_callback = false;
/// Whether this thread holds the lock from the beginning of a launch to its end.
thread_local bool inside_launch = false;

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
        if (filter_.wants(kernel.name)) file_.kernel(kernel);
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
  for (const CUpti_CallbackId id : launch_callback_ids()) {
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
    } else {
      injection.on_launch(id, *static_cast<const CUpti_CallbackData*>(data));
    }
  } catch (const std::exception& error) {
    injection.file_.message(error.what());
  }
  inside_callback = false;
}

void Injection::on_resource(CUpti_CallbackId id, const CUpti_ResourceData& data) {
  const std::lock_guard lock(mutex_);
  const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
  switch (id) {
    case CUPTI_CBID_RESOURCE_CONTEXT_CREATED:
      return add_context(data.context);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return remove_context(data.context);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
      graphs_[graph->graphExec] = kernels_of_graph(*driver_, graph->graph);
      return;
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      graphs_.erase(graph->graphExec);
      return;
    default:
      return;
  }
}

void Injection::suspend_others(CUcontext context) {
  for (const auto& [other, counters] : contexts_) {
    if (other != context && counters) counters->suspend();
  }
}

void Injection::add_context(CUcontext context) {
  contexts_[context] = nullptr;
  suspend_others(context);
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxPushCurrent, context);
  try {
    auto counters =
        std::make_unique<ContextCounters>(cupti_, driver_, context, request_,
                                          [this](const KernelMeasurement& kernel) { file_.kernel(kernel); });
    file_.collection(counters->facts());
    const std::string missing = counters->missing_metrics();
    if (!missing.empty()) file_.message(counters->facts().chip + " has no counters for " + missing);
    contexts_[context] = std::move(counters);
  } catch (const std::exception& error) {
    file_.message(error.what());
  }
  CUcontext popped = nullptr;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxPopCurrent, &popped);
}

void Injection::remove_context(CUcontext context) {
  const auto entry = contexts_.find(context);
  if (entry == contexts_.end()) return;
  const std::unique_ptr<ContextCounters> counters = std::move(entry->second);
  contexts_.erase(entry);
  if (!counters) return;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxPushCurrent, context);
  try {
    counters->flush();
  } catch (const std::exception& error) {
    file_.message(error.what());
    counters->abandon();
  }
  add_losses(*counters);
  CUcontext popped = nullptr;
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxPopCurrent, &popped);
}

void Injection::give_up_counters(CUcontext context, const std::string& why) {
  file_.message(why);
  ContextCounters& counters = *contexts_[context];
  counters.abandon();
  add_losses(counters);
  contexts_[context] = nullptr;
}

void Injection::add_losses(const ContextCounters& counters) {
  lost_ += counters.lost();
  lost_in_graphs_ += counters.lost_in_graphs();
}

void Injection::on_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (data.callbackSite == CUPTI_API_ENTER) {
    mutex_.lock();
    inside_launch = true;
    before_launch(id, data);
  } else if (inside_launch) {
    const std::lock_guard unlock(mutex_, std::adopt_lock);
    inside_launch = false;
    after_launch(data);
  }
}

bool Injection::is_captured(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::vector<KernelMeasurement> Injection::kernels_of(const LaunchCall& call, const CUpti_CallbackData& data) {
  if (call.graph) {
    const auto graph = graphs_.find(call.graph);
    return graph == graphs_.end() ? std::vector<KernelMeasurement>{} : graph->second;
  }
  KernelMeasurement kernel{demangle(data.symbolName ? data.symbolName : "?"), call.facts, {}, {}, {}};
  add_function_facts(*driver_, call.function, kernel.launch);
  return {std::move(kernel)};
}

void Injection::before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  under_way_ = nullptr;
  if (filter_.done()) return;
  const LaunchCall call = read_launch_call(id, data.functionParams);
  if (is_captured(call.stream)) return;  // it will run when its graph is launched
  std::vector<LaunchedKernel> launched;
  bool wanted = false;
  for (KernelMeasurement& kernel : kernels_of(call, data)) {
    launched.push_back({std::move(kernel), false});
    launched.back().wanted = nvtx_ranges().inside() && filter_.wants(launched.back().kernel.name);
    wanted |= launched.back().wanted;
  }
  const auto context = contexts_.find(data.context);
  ContextCounters* counters = context == contexts_.end() ? nullptr : context->second.get();
  if (!counters) {
    for (const LaunchedKernel& one : launched) {
      if (one.wanted) file_.kernel(one.kernel);
    }
    return;
  }
  try {
    if (!wanted) return counters->pause();
    suspend_others(data.context);
    counters->before(std::move(launched), call.graph != nullptr);
    under_way_ = counters;
  } catch (const std::exception& error) {
    give_up_counters(data.context, error.what());
  }
}

void Injection::after_launch(const CUpti_CallbackData& data) {
  if (!under_way_) return;
  const auto* status = static_cast<const CUresult*>(data.functionReturnValue);
  try {
    under_way_->after(status && *status == CUDA_SUCCESS);
    if (filter_.done()) under_way_->flush();
  } catch (const std::exception& error) {
    give_up_counters(data.context, error.what());
  }
  under_way_ = nullptr;
}

void Injection::finish() {
  if (abandoned_) return;
  inside_callback = true;  // exit handlers of the process may still launch; nobody counts those
  const std::unique_lock lock(mutex_, kLongestWait);
  if (!lock) return file_.message("a launch was still under way at the end; its counters are lost");
  try {
    if (trace_) trace_->flush();
    while (!contexts_.empty()) remove_context(contexts_.begin()->first);
    if (lost_ > 0) file_.message(std::to_string(lost_) + " launches lost their counters");
    if (lost_in_graphs_ > 0) {
      file_.message(
          "kernel replay counted nothing of CUDA graphs: use --replay application, or metrics that fit in "
          "one "
          "pass");
    }
    if (lost_ == 0) file_.end();
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
