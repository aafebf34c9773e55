// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/injected/injection.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "common/demangle.hpp"

namespace tilescope {
namespace {

/// The launch of this thread that is under way; from its beginning to its end the thread holds its device's
/// lock.
struct LaunchUnderWay {
  int depth = 0;                        // calls that have begun: some launch through others
  DeviceLaunches* device = nullptr;     // null for a context that we were not told of
  ContextCounters* counters = nullptr;  // that stand round it, if any do
};

/// Whether this thread is inside a callback: what we call ourselves is nobody's launch.
thread_local bool inside_callback = false;
thread_local LaunchUnderWay under_way;

/// Waits until nothing of a kind is under way, but not for what never ends.
void wait_for_none(const std::atomic<int>& under_way_now) {
  constexpr std::chrono::seconds kLongestWait{10};
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (under_way_now > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// One more for as long as it lives.
class OneMore {
 public:
  explicit OneMore(std::atomic<int>& number) : number_(number) { ++number_; }
  ~OneMore() { --number_; }
  OneMore(const OneMore&) = delete;
  OneMore& operator=(const OneMore&) = delete;

 private:
  std::atomic<int>& number_;
};

}  // namespace

Injection::Injection(ProfileRequest request)
    : request_(std::move(request)),
      file_(request_.folder),
      choice_(request_, file_),
      devices_(request_, file_) {}

void Injection::connect() {
  cupti_ = CuptiLibrary::load();
  driver_ = DriverLibrary::load();
  devices_.use(cupti_, driver_);
}

void Injection::begin() {
  try {
    connect();
    if (request_.what == ProfileRequest::What::trace) {
      trace_ = std::make_unique<ActivityTrace>(cupti_, [this](const KernelMeasurement& kernel) {
        for (const LaunchedKernel& one : choice_.choose({kernel})) {
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

void Injection::begin_late(CUcontext context) {
  late_ = true;
  connect();
  devices_.add(context);
  try {
    subscribe();
  } catch (...) {
    end();
    throw;
  }
}

void Injection::end() {
  ending_ = true;
  wait_for_none(launches_);
  if (subscriber_) cupti_->cuptiUnsubscribe(subscriber_);
  subscriber_ = nullptr;
  wait_for_none(callbacks_);
  if (devices_.finish()) file_.end();
}

void Injection::subscribe() {
  TILESCOPE_CUPTI_CALL(*cupti_, cuptiSubscribe, &subscriber_, callback, this);
  std::vector<CUpti_CallbackId> calls = launch_callback_ids();
  calls.insert(calls.end(), graph_change_ids().begin(), graph_change_ids().end());
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
  const OneMore one(injection.callbacks_);
  inside_callback = true;
  try {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      injection.on_resource(id, *static_cast<const CUpti_ResourceData*>(data));
    } else {
      injection.on_call(id, *static_cast<const CUpti_CallbackData*>(data));
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
      return devices_.add(data.context);
    case CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING:
      return devices_.remove(data.context);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED:
      return graphs_.set(*driver_, graph->graphExec, graph->graph);
    case CUPTI_CBID_RESOURCE_GRAPHEXEC_DESTROY_STARTING:
      return graphs_.forget(graph->graphExec);
    default:
      return;
  }
}

void Injection::on_call(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const std::vector<CUpti_CallbackId>& changes = graph_change_ids();
  if (std::ranges::find(changes, id) != changes.end()) {
    return graphs_.change(*driver_, id, data);
  }
  if (data.callbackSite == CUPTI_API_ENTER) {
    if (under_way.depth > 0) {
      ++under_way.depth;
      return;
    }
    ++launches_;
    if (ending_) {
      --launches_;
      return;
    }
    under_way.depth = 1;
    under_way.counters = nullptr;
    under_way.device = devices_.of(data.context);
    if (under_way.device) under_way.device->mutex.lock();
    before_launch(id, data);
  } else if (under_way.depth > 0 && --under_way.depth == 0) {
    {
      std::unique_lock<std::recursive_timed_mutex> unlock;
      if (under_way.device) unlock = {under_way.device->mutex, std::adopt_lock};
      after_launch(data);
    }
    --launches_;
  }
}

bool Injection::is_captured(CUstream stream) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver_->cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

std::vector<KernelMeasurement> Injection::kernels_of(const LaunchCall& call, const CUpti_CallbackData& data) {
  if (call.graph) {
    std::vector<KernelMeasurement> kernels = graphs_.of(call.graph);
    if (late_ && kernels.empty()) kernels.push_back({"graph made earlier", {}, {}, {}, {}});
    return kernels;
  }
  KernelMeasurement kernel{demangle(data.symbolName ? data.symbolName : "?"), call.facts, {}, {}, {}};
  add_function_facts(*driver_, call.function, kernel.launch);
  return {std::move(kernel)};
}

void Injection::before_launch(CUpti_CallbackId id, const CUpti_CallbackData& data) {
  if (choice_.done()) return;
  const LaunchCall call = read_launch_call(id, data.functionParams);
  if (is_captured(call.stream)) return;  // it will run when its graph is launched
  std::vector<LaunchedKernel> launched = choice_.choose(kernels_of(call, data));
  const bool wanted = std::ranges::any_of(launched, &LaunchedKernel::wanted);
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
    devices_.suspend_others(*under_way.device, data.context);
    counters->before(std::move(launched), call.graph != nullptr);
    under_way.counters = counters;
  } catch (const std::exception& error) {
    devices_.give_up(*under_way.device, data.context, error.what());
  }
}

void Injection::after_launch(const CUpti_CallbackData& data) {
  if (!under_way.counters) return;
  const auto* status = static_cast<const CUresult*>(data.functionReturnValue);
  try {
    under_way.counters->after(status && *status == CUDA_SUCCESS);
    if (choice_.done()) under_way.counters->flush();
  } catch (const std::exception& error) {
    devices_.give_up(*under_way.device, data.context, error.what());
  }
}

void Injection::finish() {
  if (abandoned_) return;
  inside_callback = true;  // exit handlers of the process may still launch; nobody counts those
  try {
    if (trace_) trace_->flush();
    if (devices_.finish()) file_.end();
  } catch (const std::exception& error) {
    file_.message(error.what());
  }
}

}  // namespace tilescope
