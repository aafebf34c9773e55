// SPDX-License-Identifier: Apache-2.0
// The GPU kernels, rung after rung. Built with and without CUDA, so that list, simulate and report know every
// row; only running one needs CUDA and a device.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/tiled_pass.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// Rows of the GPU kernels; run is null in a build without CUDA.
std::span<const Kernel> gpu_kernels();

/// The same rows with their launch functions, for those that time or profile single passes.
std::span<const GpuKernel> gpu_kernel_rungs();
/// Those of the ladder, which have both passes: without gpu:split-k, which stands beside it.
std::span<const GpuKernel> gpu_ladder();

/// @throws BadInput if no GPU kernel has that name.
const GpuKernel& find_gpu_kernel(std::string_view name);

/// The tile shapes that a kernel is compiled for on a problem, its own choice first; none for a kernel of the
/// CPU, which takes any.
std::vector<TileShape> tile_choices(const Kernel& kernel, const AttentionProblem& problem, TiledPass pass);

struct DeviceFacts {
  std::string name;                       // "NVIDIA H200"
  std::int64_t shared_bytes_per_cta = 0;  // the most that a CTA can ask for
  std::string chip;                       // "sm_90"
  std::string driver, cuda;               // CUDA versions of the driver and of this build: "13.0"
};

/// The device that GPU kernels run on, or nothing where they cannot run.
std::optional<DeviceFacts> device_facts();

/// Why this machine cannot run GPU kernels, and what would help, or nothing if it can.
std::optional<std::string> device_lack();

}  // namespace tilescope
