// SPDX-License-Identifier: Apache-2.0
// The GPU kernels, rung after rung, and all kernels, those of the CPU first. Built with and without CUDA, so
// that list, simulate and report know every row; only running one needs CUDA and a device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// Rows of the GPU kernels; run is null in a build without CUDA.
std::span<const Kernel> gpu_kernels();

/// The same rows with their launch functions, for those that time or profile single passes.
std::span<const GpuKernel> gpu_kernel_rungs();
/// Those of the ladder, in its order: without those that stand beside it.
std::span<const GpuKernel> gpu_ladder();

/// Those that the GPUs of a distributed program launch, the highest rung first: the first that takes a
/// program is what its ranks launch.
std::vector<const Kernel*> rank_kernels();

/// @throws BadInput if no GPU kernel has that name.
const GpuKernel& find_gpu_kernel(std::string_view name);

/// Every registered kernel, CPU first.
std::vector<const Kernel*> all_kernels();
/// @throws UnknownName naming the nearest
const Kernel& find_kernel(const std::string& name);

/// Refuses a direction of the problem that no kernel could compute. @throws BadInput
void require_direction(const AttentionProblem& problem, Direction direction);
/// @throws BadInput as that, or with the kernel's reason and those that can, when it refuses a direction of
/// the problem
void require_supported(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                       const ProgramOptions& options);

/// Whether this build has the kernel's code, and this machine the device that it needs.
bool is_runnable(const Kernel& kernel);
/// @throws MachineLacks when this build or machine cannot run the kernel, with what would help
void require_runnable(const Kernel& kernel);

/// "gpu:a computes fp32 only, not fp16; it runs on gpu:b": a kernel's reason for refusing one direction of a
/// problem, and the GPU kernels that take it, on `chip` if one is given.
std::string refusal_sentence(const Kernel& kernel, const std::string& reason, const AttentionProblem& problem,
                             Direction direction, const std::optional<Chip>& chip = std::nullopt);

struct DeviceFacts {
  std::string name;  // "NVIDIA H200"
  Chip chip;
  std::string driver, cuda;  // CUDA versions of the driver and of this build: "13.0"
};

/// The device that GPU kernels run on, or nothing where they cannot run.
std::optional<DeviceFacts> device_facts();

/// Why this build has not the code for the tiles of `options`, or for cutting them in diagonal slices, as
/// half a sentence that says what to build, or nothing. Precondition: the kernel does not refuse them.
std::optional<std::string> build_lack(const Kernel& kernel, const AttentionProblem& problem,
                                      Direction direction, const ProgramOptions& options);
inline constexpr std::string_view kTunerLack =
    "this build has the GPU kernels' own tiles alone, whole; configure one with -D TILESCOPE_TUNER=ON";

/// Why this machine cannot run GPU kernels, and what would help, or nothing if it can.
std::optional<std::string> device_lack();

}  // namespace tilescope
