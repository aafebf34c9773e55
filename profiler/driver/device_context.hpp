// SPDX-License-Identifier: Apache-2.0
// A device to measure on: its primary context, made current, which is the one that the CUDA runtime uses too.
#pragma once

#include <memory>
#include <string>

#include "profiler/driver/driver_library.hpp"

namespace tilescope {

class DeviceContext {
 public:
  /// @throws MachineLacks without a driver or a device
  explicit DeviceContext(int device_index = 0);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  /// What was current before is so again: while somebody else's code runs, CurrentContext brings ours back.
  void leave();

  std::shared_ptr<const DriverLibrary> driver() const { return driver_; }
  CUcontext get() const { return context_; }
  int device_index() const { return device_index_; }
  std::string name() const;            // "NVIDIA H200"
  std::string driver_version() const;  // of CUDA that the driver supports: "13.0"
  int attribute(CUdevice_attribute which) const;

 private:
  std::shared_ptr<const DriverLibrary> driver_;
  int device_index_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  bool current_ = false;
};

/// Makes a context current as long as it lives.
class CurrentContext {
 public:
  CurrentContext(std::shared_ptr<const DriverLibrary> driver, CUcontext context)
      : driver_(std::move(driver)) {
    TILESCOPE_DRIVER_CALL(*driver_, cuCtxPushCurrent, context);
  }
  ~CurrentContext() {
    CUcontext popped = nullptr;
    driver_->cuCtxPopCurrent(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  std::shared_ptr<const DriverLibrary> driver_;
};

}  // namespace tilescope
