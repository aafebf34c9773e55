// SPDX-License-Identifier: Apache-2.0
// What the program's objects registered before main: their PTX, and which host function or variable stands
// for which kernel or device variable.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulator/machine/launch_limits.hpp"
#include "emulator/ptx/module.hpp"
#include "emulator/runtime/devices.hpp"

namespace tilescope::gpu::emulator {

/// The PTX of one source, read for each device that uses it.
class ModuleImage {
 public:
  explicit ModuleImage(const void* fatbin_wrapper) : wrapper_(fatbin_wrapper) {}

  /// The device's own copy of the module, whose variables it can access.
  /// @throws CudaFailure where there is no PTX, or what the emulator does not know
  const ptx::Module& on(Device& device);

 private:
  const void* wrapper_;
  std::mutex mutex_;
  std::map<int, ptx::Module> by_device_;
};

/// A kernel as host code names it, with what cudaFuncSetAttribute said of it.
struct Function {
  ModuleImage* module;
  std::string name;
  HostAttributes attributes{};

  /// @throws as ModuleImage::on, and where the module has no such kernel
  const ptx::Kernel& on(Device& device) const;
};

struct DeviceVariable {
  ModuleImage* module;
  std::string name;
};

/// All of the process; filled before main, by one thread.
struct Registry {
  std::vector<std::unique_ptr<ModuleImage>> modules;
  std::map<const void*, std::unique_ptr<Function>> functions;  // by host function
  std::map<const void*, DeviceVariable> variables;             // by host variable
};
Registry& registry();

/// @param handle  a host function, or what __cudaGetKernel gave for it
/// @throws CudaFailure where nothing was registered for it
Function& function_of(const void* handle);

}  // namespace tilescope::gpu::emulator
