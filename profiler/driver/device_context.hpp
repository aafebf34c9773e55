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
};

}  // namespace tilescope
