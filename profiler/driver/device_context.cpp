// SPDX-License-Identifier: Apache-2.0
#include "profiler/driver/device_context.hpp"

namespace tilescope {

DeviceContext::DeviceContext(int device_index) : driver_(DriverLibrary::load()), device_index_(device_index) {
  TILESCOPE_DRIVER_CALL(*driver_, cuInit, 0);
  TILESCOPE_DRIVER_CALL(*driver_, cuDeviceGet, &device_, device_index);
  TILESCOPE_DRIVER_CALL(*driver_, cuDevicePrimaryCtxRetain, &context_, device_);
  TILESCOPE_DRIVER_CALL(*driver_, cuCtxPushCurrent, context_);
  current_ = true;
}

// The primary context stays until the process ends: it is the CUDA runtime's too, with whatever it holds.
DeviceContext::~DeviceContext() { leave(); }

void DeviceContext::leave() {
  CUcontext popped = nullptr;
  if (current_) driver_->cuCtxPopCurrent(&popped);
  current_ = false;
}

std::string DeviceContext::name() const { return device_name(*driver_, device_); }
std::string DeviceContext::driver_version() const { return tilescope::driver_version(*driver_); }

int DeviceContext::attribute(CUdevice_attribute which) const {
  int value = 0;
  TILESCOPE_DRIVER_CALL(*driver_, cuDeviceGetAttribute, &value, which, device_);
  return value;
}

}  // namespace tilescope
