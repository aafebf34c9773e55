// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/activity_trace.hpp"

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "common/demangle.hpp"

namespace tilescope {

struct ActivityTrace::State {
  std::shared_ptr<const CuptiLibrary> library;
  Sink sink;
  std::atomic<std::size_t> dropped = 0;
};

namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kAlignment = 8;  // asked for by CUPTI
constexpr double kSecondsPerTick = 1e-9;

/// The trace that CUPTI's callbacks, which carry no user data, belong to. They come on a thread of CUPTI's.
std::atomic<std::shared_ptr<ActivityTrace::State>>& current() {
  static std::atomic<std::shared_ptr<ActivityTrace::State>> state;
  return state;
}

// CUPTI's kernel records grew by appending; the fields read here are in all versions since 12.0.
KernelMeasurement read_kernel(const CUpti_ActivityKernel10& record) {
  KernelMeasurement kernel;
  kernel.name = demangle(record.name ? record.name : "?");
  kernel.launch.grid = {record.gridX, record.gridY, record.gridZ};
  kernel.launch.block = {record.blockX, record.blockY, record.blockZ};
  if (record.clusterX > 0) kernel.launch.cluster = {{record.clusterX, record.clusterY, record.clusterZ}};
  kernel.launch.registers = record.registersPerThread;
  kernel.launch.shared_bytes = std::int64_t{record.staticSharedMemory} + record.dynamicSharedMemory;
  kernel.launch.local_bytes = record.localMemoryPerThread;
  if (record.end > record.start) {
    kernel.time = KernelTime{{static_cast<double>(record.end - record.start) * kSecondsPerTick}};
  }
  return kernel;
}

void CUPTIAPI request_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer ? kBufferBytes : 0;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI complete_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                              std::size_t valid_bytes) {
  if (const std::shared_ptr<ActivityTrace::State> state = current().load()) {
    CUpti_Activity* record = nullptr;
    while (state->library->cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
      if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
      state->sink(read_kernel(*reinterpret_cast<const CUpti_ActivityKernel10*>(record)));
    }
    std::size_t dropped = 0;
    if (state->library->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS) {
      state->dropped += dropped;
    }
  }
  std::free(buffer);
}

}  // namespace

ActivityTrace::ActivityTrace(std::shared_ptr<const CuptiLibrary> library, Sink sink)
    : state_(std::make_shared<State>()) {
  if (current().load()) throw std::logic_error("an activity trace is running already");
  state_->library = std::move(library);
  state_->sink = std::move(sink);
  const CuptiLibrary& cupti = *state_->library;
  TILESCOPE_CUPTI_CALL(cupti, cuptiActivityRegisterCallbacks, request_buffer, complete_buffer);
  TILESCOPE_CUPTI_CALL(cupti, cuptiActivityEnable, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  current().store(state_);
}

ActivityTrace::~ActivityTrace() {
  state_->library->cuptiActivityDisable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  state_->library->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  current().store(nullptr);
}

void ActivityTrace::flush() {
  TILESCOPE_CUPTI_CALL(*state_->library, cuptiActivityFlushAll, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
}

std::size_t ActivityTrace::dropped() const { return state_->dropped; }

}  // namespace tilescope
