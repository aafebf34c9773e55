// SPDX-License-Identifier: Apache-2.0
// Launches: the limits that CUDA refuses beyond, and the machine that executes what is left.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "emulator/counts/result_file.hpp"
#include "emulator/emulator.hpp"
#include "emulator/runtime/environment.hpp"
#include "emulator/runtime/errors.hpp"
#include "emulator/runtime/modules.hpp"
#include "emulator/runtime/streams.hpp"

namespace tilescope::gpu::emulator {
namespace {

struct Request {
  dim3 grid, block, cluster{1, 1, 1};
  std::size_t dynamic_shared_bytes = 0;
  void** arguments = nullptr;
  cudaStream_t stream = nullptr;
};

Extent extent(const dim3& size) { return {size.x, size.y, size.z}; }

/// @throws CudaFailure for a launch that the device refuses
void require_launchable(const Function& function, const Launch& launch) {
  const ChipLimits chip{.shared_bytes = static_cast<std::uint32_t>(
                            attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin)),
                        .has_clusters = attribute_of_device(cudaDevAttrClusterLaunch) != 0};
  const std::optional<Refusal> refused = refusal_of(launch, function.attributes, std::nullopt, chip);
  if (!refused) return;
  cudaError_t status = cudaErrorInvalidValue;
  if (refused->kind == Refusal::Kind::configuration) status = cudaErrorInvalidConfiguration;
  if (refused->kind == Refusal::Kind::resources) status = cudaErrorLaunchOutOfResources;
  if (refused->kind == Refusal::Kind::cluster) status = cudaErrorInvalidClusterSize;
  throw CudaFailure(status, refused->text + ", kernel " + launch.kernel->name);
}

/// TILESCOPE_EMULATED_SEED, _STEPS (the most of a launch), _RACES (1: look for them), _THREADS.
Options options_from_environment() {
  Options options;
  options.seed = from_environment("TILESCOPE_EMULATED_SEED", options.seed);
  options.step_limit = from_environment("TILESCOPE_EMULATED_STEPS", options.step_limit);
  options.races = from_environment("TILESCOPE_EMULATED_RACES", static_cast<int>(options.races)) != 0;
  options.threads = from_environment("TILESCOPE_EMULATED_THREADS", options.threads);
  return options;
}

/// Where TILESCOPE_EMULATED_LOG is 1: a line a launch.
void log_launch(const Launch& launch, const Report& report, double seconds) {
  static const bool wanted = from_environment("TILESCOPE_EMULATED_LOG", 0) != 0;
  if (!wanted) return;
  say(fmt::format("{}: {} CTAs of {} threads, {} steps, {} sectors read, {} written, {} wavefronts, {:.2f} s",
                  launch.kernel->name, launch.grid.count(), launch.block.count(), report.steps,
                  report.global_sectors_read, report.global_sectors_written, report.shared_wavefronts,
                  seconds));
}

/// A race is an error of the kernel, found after it has run.
void require_no_races(const Launch& launch, const Report& report) {
  if (report.races.empty()) return;
  std::string text = launch.kernel->name + " has " + std::to_string(report.races.size()) + " races";
  for (const Race& race : report.races) text += "\n  " + race.text;
  throw CudaFailure(cudaErrorLaunchFailure, text);
}

/// With its result in the file that TILESCOPE_EMULATED_COUNTS names, where it does.
Report run_and_count(const ptx::Module& module, const Launch& launch, const Memory& memory,
                     const Options& options) {
  const char* const file = std::getenv("TILESCOPE_EMULATED_COUNTS");
  if (!file) return run(launch, memory, options);
  KernelResult result = observe(module, launch, memory, options);
  std::ofstream out(file, std::ios::app);
  write_result(out, facts_of(module, launch), result);
  if (!result.completed) throw DeviceError(result.findings.at(0).text);
  return std::move(result.report);
}

void execute(Device& device, const ptx::Module& module, const Launch& launch) {
  const std::lock_guard lock(device.mutex());
  const auto start = std::chrono::steady_clock::now();
  const Report report = run_and_count(module, launch, device.memory(), options_from_environment());
  log_launch(launch, report, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  require_no_races(launch, report);
}

/// @throws CudaFailure where the launch is refused
void launch(const Function& function, const Request& request) {
  Device& device = current_device();
  const ptx::Kernel& kernel = function.on(device);
  Launch launch{.kernel = &kernel,
                .grid = extent(request.grid),
                .block = extent(request.block),
                .cluster = cluster_or_required(kernel, extent(request.cluster)),
                .dynamic_shared_bytes = static_cast<std::uint32_t>(request.dynamic_shared_bytes),
                .parameters = std::vector<std::byte>(kernel.parameter_bytes)};
  require_launchable(function, launch);
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    const ptx::Variable& parameter = kernel.parameters[i];
    std::memcpy(launch.parameters.data() + parameter.offset, request.arguments[i], parameter.bytes);
  }
  issue(request.stream, [&device, &module = function.module->on(device), launch = std::move(launch)] {
    execute(device, module, launch);
  });
}

/// What stands between <<< and >>> until the kernel's stub takes it.
std::vector<Request>& pushed() {
  thread_local std::vector<Request> requests;
  return requests;
}

}  // namespace
}  // namespace tilescope::gpu::emulator

using namespace tilescope::gpu::emulator;

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t dynamic_shared_bytes,
                                     CUstream_st* stream) {
  pushed().push_back(
      {.grid = grid, .block = block, .dynamic_shared_bytes = dynamic_shared_bytes, .stream = stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* dynamic_shared_bytes,
                                       void* stream) {
  const Request request = pushed().back();
  pushed().pop_back();
  *grid = request.grid;
  *block = request.block;
  *dynamic_shared_bytes = request.dynamic_shared_bytes;
  *static_cast<cudaStream_t*>(stream) = request.stream;
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             std::size_t dynamic_shared_bytes, cudaStream_t stream) {
  return as_call("cudaLaunchKernel", [&] {
    launch(function_of(function), {.grid = grid,
                                   .block = block,
                                   .dynamic_shared_bytes = dynamic_shared_bytes,
                                   .arguments = arguments,
                                   .stream = stream});
  });
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               std::size_t dynamic_shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, dynamic_shared_bytes, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return as_call("cudaLaunchKernelExC", [&] {
    Request request{.grid = config->gridDim,
                    .block = config->blockDim,
                    .dynamic_shared_bytes = config->dynamicSmemBytes,
                    .arguments = arguments,
                    .stream = config->stream};
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      const cudaLaunchAttribute& attribute = config->attrs[i];
      if (attribute.id == cudaLaunchAttributeClusterDimension) {
        const auto& size = attribute.val.clusterDim;
        request.cluster = dim3(size.x, size.y, size.z);
      } else if (attribute.id != cudaLaunchAttributeProgrammaticStreamSerialization) {
        // The latter lets a kernel begin before its predecessor has ended; it need not.
        throw CudaFailure(cudaErrorNotSupported, "launch attribute " + std::to_string(attribute.id));
      }
    }
    launch(function_of(function), request);
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return as_call("cudaFuncSetAttribute", [&] {
    Function& changed = function_of(function);
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
      const ptx::Kernel& kernel = changed.on(current_device());
      const auto room = attribute_of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin) -
                        static_cast<int>(static_shared_bytes(kernel));
      if (value < 0 || value > room) {
        throw CudaFailure(cudaErrorInvalidValue, std::to_string(value) + " bytes of dynamic shared memory, " +
                                                     std::to_string(room) + " are there");
      }
      changed.attributes.max_dynamic_shared = static_cast<std::uint32_t>(value);
    } else if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
      changed.attributes.non_portable_cluster = value != 0;
    } else {
      throw CudaFailure(cudaErrorNotSupported, "attribute " + std::to_string(attribute) + " of a kernel");
    }
  });
}
}
