// SPDX-License-Identifier: Apache-2.0
#include "profiler/driver/driver_library.hpp"

// A second level, so that cuda.h's mapping to versioned names is applied before the name becomes text.
#define TILESCOPE_TEXT(name) #name
#define TILESCOPE_EXPORTED_NAME(name) TILESCOPE_TEXT(name)

namespace tilescope {
namespace {

[[noreturn]] void driver_lacks(const char* name) {
  throw MachineLacks(std::string("the NVIDIA driver lacks ") + name + "; update it");
}

}  // namespace

std::shared_ptr<const DriverLibrary> DriverLibrary::load() {
  std::string why;
  SharedObject object = SharedObject::open("libcuda.so.1", &why);
  if (!object) throw MachineLacks("no NVIDIA driver on this machine (" + why + ")");
  return std::shared_ptr<const DriverLibrary>(new DriverLibrary(std::move(object)));
}

DriverLibrary::DriverLibrary(SharedObject object) : object_(std::move(object)) {
#define TILESCOPE_RESOLVE(name) \
  if (!object_.resolve(TILESCOPE_EXPORTED_NAME(name), this->name)) driver_lacks(#name);
  TILESCOPE_DRIVER_FUNCTIONS(TILESCOPE_RESOLVE)
#undef TILESCOPE_RESOLVE
}

void DriverLibrary::check(CUresult result, const char* call) const {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  const std::string text = std::string(call) + ": " + (name ? name : std::to_string(result));
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      throw MachineLacks("no CUDA device is visible; check nvidia-smi and CUDA_VISIBLE_DEVICES [" + text +
                         "]");
    case CUDA_ERROR_OUT_OF_MEMORY:
      throw MachineLacks("out of device memory [" + text + "]");
    default:
      throw DriverError(text);
  }
}

std::string device_name(const DriverLibrary& driver, CUdevice device) {
  char name[256] = {};
  TILESCOPE_DRIVER_CALL(driver, cuDeviceGetName, name, sizeof name, device);
  return name;
}

std::string driver_version(const DriverLibrary& driver) {
  int version = 0;
  TILESCOPE_DRIVER_CALL(driver, cuDriverGetVersion, &version);
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace tilescope
