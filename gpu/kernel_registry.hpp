// SPDX-License-Identifier: Apache-2.0
// The GPU kernels, rung after rung. Built with and without CUDA, so that list, simulate and report know every
// row; only running one needs CUDA and a device.
#pragma once

#include <span>
#include <string_view>

#include "gpu/gpu_kernel.hpp"

namespace tilescope {

/// Rows of the GPU kernels; run is null in a build without CUDA.
std::span<const Kernel> gpu_kernels();

/// The same rows with their launch functions, for those that time or profile single passes.
std::span<const GpuKernel> gpu_kernel_rungs();

/// @throws BadInput if no GPU kernel has that name.
const GpuKernel& find_gpu_kernel(std::string_view name);

/// Why this machine cannot run GPU kernels, and what would help, or nothing if it can.
std::optional<std::string> device_lack();

}  // namespace tilescope
