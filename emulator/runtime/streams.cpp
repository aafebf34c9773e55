// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/streams.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "emulator/runtime/devices.hpp"
#include "emulator/runtime/errors.hpp"

using namespace tilescope::gpu::emulator;

// The types that CUDA's handles point to; their names are CUDA's.
struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};
struct CUstream_st {
  std::unique_ptr<CUgraph_st> captured = nullptr;
};
struct CUevent_st {
  std::optional<std::chrono::steady_clock::time_point> recorded;
};

namespace tilescope::gpu::emulator {
namespace {

/// The handles of one kind that were made and not destroyed.
template <typename Object>
class Handles {
 public:
  Object* add(std::unique_ptr<Object> object) {
    const std::lock_guard lock(mutex_);
    return objects_.insert(std::move(object)).first->get();
  }
  Object& at(Object* handle) {
    const std::lock_guard lock(mutex_);
    return **find(handle);
  }
  void remove(Object* handle) {
    const std::lock_guard lock(mutex_);
    objects_.erase(find(handle));
  }

 private:
  struct Less {
    using is_transparent = void;
    static const Object* pointer(const std::unique_ptr<Object>& owner) { return owner.get(); }
    static const Object* pointer(const Object* handle) { return handle; }
    bool operator()(const auto& a, const auto& b) const { return std::less<>()(pointer(a), pointer(b)); }
  };
  auto find(const Object* handle) {
    const auto found = objects_.find(handle);
    if (found == objects_.end()) throw CudaFailure(cudaErrorInvalidResourceHandle, "no such handle");
    return found;
  }
  std::mutex mutex_;
  std::set<std::unique_ptr<Object>, Less> objects_;
};

template <typename Object>
Handles<Object>& all() {
  static auto& handles = *new Handles<Object>;
  return handles;
}

/// Those that need not be created.
bool is_default(cudaStream_t stream) {
  return !stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

void do_now(const Work& work) {
  if (has_failed()) return;
  try {
    work();
  } catch (const CudaFailure& failure) {
    note_failure(failure.status(), failure.what(), true);
  } catch (const std::exception& error) {
    note_failure(cudaErrorLaunchFailure, error.what(), true);
  }
}

}  // namespace

/// What the stream's work becomes part of while it is captured, else null.
CUgraph_st* captured_on(cudaStream_t stream) {
  return is_default(stream) ? nullptr : all<CUstream_st>().at(stream).captured.get();
}

void issue(cudaStream_t stream, Work work) {
  if (CUgraph_st* const graph = captured_on(stream)) {
    graph->nodes.push_back(std::move(work));
  } else {
    do_now(work);
  }
}

void require_idle(cudaStream_t stream) {
  if (captured_on(stream)) {
    throw CudaFailure(cudaErrorStreamCaptureInvalidated, "the stream is being captured");
  }
}

}  // namespace tilescope::gpu::emulator

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return as_call("cudaStreamCreate",
                 [&] { *stream = all<CUstream_st>().add(std::make_unique<CUstream_st>()); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return as_call("cudaStreamDestroy", [&] { all<CUstream_st>().remove(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  meet_failures();
  return as_call("cudaStreamSynchronize", [&] { require_idle(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  meet_failures();
  return as_call("cudaStreamQuery", [&] { require_idle(stream); });
}
cudaError_t cudaDeviceSynchronize() {
  meet_failures();
  return as_call("cudaDeviceSynchronize", [] { current_device(); });
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = 0;
  return stuck_failure();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return as_call("cudaEventCreate", [&] { *event = all<CUevent_st>().add(std::make_unique<CUevent_st>()); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return as_call("cudaEventDestroy", [&] { all<CUevent_st>().remove(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return as_call("cudaEventRecord", [&] {
    CUevent_st& recorded = all<CUevent_st>().at(event);
    recorded.recorded.reset();
    // In a capture it marks a place for others to wait for; launches of the graph do not record it.
    if (!captured_on(stream)) do_now([&] { recorded.recorded = std::chrono::steady_clock::now(); });
  });
}
// What an event or a stream waits for has been done.
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  meet_failures();
  return as_call("cudaEventSynchronize", [&] { all<CUevent_st>().at(event); });
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return as_call("cudaStreamWaitEvent", [&] {
    all<CUevent_st>().at(event);
    issue(stream, [] {});
  });
}
/// The host's time: this device has none of its own.
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return as_call("cudaEventElapsedTime", [&] {
    const CUevent_st &from = all<CUevent_st>().at(start), &to = all<CUevent_st>().at(end);
    if (!from.recorded || !to.recorded) throw CudaFailure(cudaErrorInvalidResourceHandle, "not recorded");
    *milliseconds = std::chrono::duration<float, std::milli>(*to.recorded - *from.recorded).count();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return as_call("cudaStreamBeginCapture",
                 [&] { all<CUstream_st>().at(stream).captured = std::make_unique<CUgraph_st>(); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return as_call("cudaStreamEndCapture", [&] {
    std::unique_ptr<CUgraph_st>& captured = all<CUstream_st>().at(stream).captured;
    if (!captured) throw CudaFailure(cudaErrorInvalidValue, "nothing is being captured");
    *graph = all<CUgraph_st>().add(std::move(captured));
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  return as_call("cudaGraphInstantiate", [&] {
    *executable =
        all<CUgraphExec_st>().add(std::make_unique<CUgraphExec_st>(all<CUgraph_st>().at(graph).nodes));
  });
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return as_call("cudaGraphLaunch", [&] {
    for (const Work& work : all<CUgraphExec_st>().at(executable).nodes) issue(stream, work);
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return as_call("cudaGraphDestroy", [&] { all<CUgraph_st>().remove(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return as_call("cudaGraphExecDestroy", [&] { all<CUgraphExec_st>().remove(executable); });
}
}
