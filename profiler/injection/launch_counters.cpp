// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/launch_counters.hpp"

#include <optional>

#include "common/temporary_folder.hpp"
#include "profiler/driver/device_context.hpp"
#include "profiler/injection/injected/injection.hpp"

namespace tilescope {

struct LaunchCounters::State {
  ProfileRequest request;
  int device_index;
  TemporaryFolder folder;
  std::optional<Injection> injection;
};

LaunchCounters::LaunchCounters(const std::string& metrics, int device_index, L2State l2,
                               const std::string& kernel_filter)
    : state_(std::make_unique<State>()) {
  state_->device_index = device_index;
  state_->request.metrics = metrics;
  state_->request.l2 = l2;
  state_->request.kernel_filter = kernel_filter;
  state_->request.folder = state_->folder.path();
}

LaunchCounters::~LaunchCounters() {
  if (state_->injection) state_->injection->end();
}

void LaunchCounters::open() {
  const DeviceContext device(state_->device_index);
  TILESCOPE_DRIVER_CALL(*device.driver(), cuCtxSynchronize);
  state_->injection.emplace(state_->request);
  try {
    state_->injection->begin_late(device.get());
  } catch (...) {
    state_->injection.reset();
    throw;
  }
}

Events LaunchCounters::close() {
  state_->injection->end();
  state_->injection.reset();
  return read_events(state_->folder.path());
}

}  // namespace tilescope
