// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/modules.hpp"

#include <algorithm>

#include "emulator/runtime/errors.hpp"
#include "emulator/runtime/fatbin.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// What a driver would compile: the text of the newest chip that the device is not older than. One for a
/// newer chip serves too: PTX is executed as it stands.
std::string_view choose(const std::vector<PtxText>& texts) {
  const int chip = device_choice().compute_capability;
  const PtxText* chosen = nullptr;
  for (const PtxText& text : texts) {
    const auto rank = [&](const PtxText& of) {
      return of.compute_capability <= chip ? 1000 + of.compute_capability : -of.compute_capability;
    };
    if (!chosen || rank(text) > rank(*chosen)) chosen = &text;
  }
  if (!chosen) {
    throw CudaFailure(cudaErrorNoKernelImageForDevice,
                      "the object has no PTX: compile with code=compute_90a, not code=sm_90a");
  }
  return chosen->text;
}

}  // namespace

const ptx::Module& ModuleImage::on(Device& device) {
  const std::lock_guard lock(mutex_);
  const auto found = by_device_.find(device.number());
  if (found != by_device_.end()) return found->second;
  try {
    const ptx::Module& module =
        by_device_.emplace(device.number(), ptx::parse(choose(ptx_texts(wrapper_)))).first->second;
    const std::lock_guard memory_lock(device.mutex());
    for (const ptx::Variable& variable : module.variables) {
      device.memory().add(variable.data.get(), variable.bytes, variable.name);
    }
    return module;
  } catch (const CudaFailure&) {
    throw;
  } catch (const std::exception& error) {
    throw CudaFailure(cudaErrorInvalidPtx, error.what());
  }
}

const ptx::Kernel& Function::on(Device& device) const {
  const ptx::Kernel* const kernel = module->on(device).find(name);
  if (!kernel) throw CudaFailure(cudaErrorInvalidDeviceFunction, "the PTX lacks " + name);
  return *kernel;
}

Registry& registry() {
  // Never destroyed: objects of static duration may launch and free after main has returned.
  static auto& all = *new Registry;
  return all;
}

Function& function_of(const void* handle) {
  auto& functions = registry().functions;
  const auto found = functions.find(handle);
  if (found != functions.end()) return *found->second;
  for (const auto& [host, function] : functions) {
    if (function.get() == handle) return *function;
  }
  throw CudaFailure(cudaErrorInvalidDeviceFunction, "no kernel is registered for this function");
}

}  // namespace tilescope::gpu::emulator

using namespace tilescope::gpu::emulator;

// What objects that nvcc compiled call before and after main; crt/host_runtime.h declares it.
extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  auto& modules = registry().modules;
  modules.push_back(std::make_unique<ModuleImage>(wrapper));
  return reinterpret_cast<void**>(modules.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }

void __cudaRegisterFunction(void** module, const char* host, char*, const char* name, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  registry().functions[host] =
      std::make_unique<Function>(Function{reinterpret_cast<ModuleImage*>(module), name});
}
void __cudaRegisterVar(void** module, char* host, char*, const char* name, int, std::size_t, int, int) {
  registry().variables[host] = {reinterpret_cast<ModuleImage*>(module), name};
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  return as_call("__cudaGetKernel", [&] { *kernel = reinterpret_cast<cudaKernel_t>(&function_of(host)); });
}

cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return as_call("cudaGetSymbolAddress", [&] {
    const auto& variables = registry().variables;
    const auto found = variables.find(symbol);
    if (found == variables.end()) throw CudaFailure(cudaErrorInvalidSymbol, "not a device variable");
    const ptx::Module& module = found->second.module->on(current_device());
    const auto variable = std::ranges::find(module.variables, found->second.name, &ptx::Variable::name);
    if (variable == module.variables.end()) {
      throw CudaFailure(cudaErrorInvalidSymbol, "the PTX lacks " + found->second.name);
    }
    *address = variable->data.get();
  });
}
}
