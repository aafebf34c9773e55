// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, found and loaded while the program runs: a program that links this room starts on a
// machine without one.
#pragma once

#include <cuda.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "common/errors.hpp"
#include "profiler/driver/shared_object.hpp"

namespace tilescope {

#define TILESCOPE_DRIVER_FUNCTIONS(X) \
  X(cuInit)                           \
  X(cuGetErrorName)                   \
  X(cuDeviceGet)                      \
  X(cuDeviceGetCount)                 \
  X(cuDeviceGetName)                  \
  X(cuDeviceGetAttribute)             \
  X(cuDevicePrimaryCtxRetain)         \
  X(cuCtxGetCurrent)                  \
  X(cuCtxGetDevice)                   \
  X(cuCtxPushCurrent)                 \
  X(cuCtxPopCurrent)                  \
  X(cuCtxSynchronize)                 \
  X(cuDriverGetVersion)               \
  X(cuEventCreate)                    \
  X(cuEventDestroy)                   \
  X(cuEventElapsedTime)               \
  X(cuEventQuery)                     \
  X(cuEventRecord)                    \
  X(cuFuncGetAttribute)               \
  X(cuFuncGetName)                    \
  X(cuGraphChildGraphNodeGetGraph)    \
  X(cuGraphGetNodes)                  \
  X(cuGraphKernelNodeGetParams)       \
  X(cuGraphNodeGetType)               \
  X(cuKernelGetFunction)              \
  X(cuLaunchKernel)                   \
  X(cuMemAlloc)                       \
  X(cuMemFree)                        \
  X(cuMemcpyDtoH)                     \
  X(cuMemsetD8)                       \
  X(cuModuleGetFunction)              \
  X(cuModuleLoadData)                 \
  X(cuModuleUnload)                   \
  X(cuStreamIsCapturing)

/// A driver call that failed.
class DriverError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The functions of libcuda, under their own names (cuda.h maps some to newer versions).
class DriverLibrary {
 public:
  /// @throws MachineLacks without a driver, or with one that is too old
  static std::shared_ptr<const DriverLibrary> load();

  /// @throws MachineLacks for a missing device or memory, DriverError for any other failure
  void check(CUresult result, const char* call) const;

#define TILESCOPE_DECLARE(name) decltype(&::name) name = nullptr;
  TILESCOPE_DRIVER_FUNCTIONS(TILESCOPE_DECLARE)
#undef TILESCOPE_DECLARE

 private:
  explicit DriverLibrary(SharedObject object);
  SharedObject object_;
};

/// "NVIDIA H200"
std::string device_name(const DriverLibrary& driver, CUdevice device);
/// The version of CUDA that the driver supports: "13.0".
std::string driver_version(const DriverLibrary& driver);

/// Calls a function of a DriverLibrary and throws on failure.
#define TILESCOPE_DRIVER_CALL(driver, function, ...) (driver).check((driver).function(__VA_ARGS__), #function)

}  // namespace tilescope
