// SPDX-License-Identifier: Apache-2.0
// One rung of gpu/kernels/: a row of the registry and the function that launches its passes. Each rung has a
// plain C++ file with its row, built always, and .cu files with its kernels, built where nvcc is.
#pragma once

#include <optional>
#include <string>

#include "cpu_ref/kernels/kernel.hpp"
#include "gpu/launch/kernel_arguments.hpp"

struct CUstream_st;  // *cudaStream_t

namespace tilescope {

#ifdef TILESCOPE_HAS_CUDA
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

/// Enqueues one pass. The options are legal: refusal() has passed.
using PassLauncher = void (*)(const TileProgram&, const KernelArguments&, CUstream_st*);

/// Why a kernel cannot run a problem, as half a sentence ("computes fp32 only"), or nothing if it can.
using RefusalReason = std::optional<std::string> (*)(const AttentionProblem&, Direction,
                                                     const ProgramOptions&);

struct GpuKernel {
  Kernel row;
  RefusalReason reason;
  PassLauncher launch;  // null in a build without CUDA
};

/// A reason made into a refusal that also names the GPU kernels that take the problem.
std::string refusal_sentence(std::string_view kernel, const std::string& reason, const AttentionProblem&,
                             Direction);

/// The run path of every GPU kernel: refuses, uploads, poisons, launches, checks the guards, downloads.
/// @throws BadInput on a refusal, MachineLacks without a device or enough device memory, DeviceError when a
/// CUDA call fails or a kernel wrote outside its buffers.
void run_on_device(const Kernel& row, PassLauncher launch, const ProgramOptions&, Direction, TensorSet&,
                   TileObserver*);

/// Builds the registry row of the kernel that `Rung` describes: static members name, summary, algorithm,
/// backward_orders(), reason(), default_options(), launch_shape() and launch(), the last one defined in a .cu
/// file.
template <typename Rung>
GpuKernel make_gpu_kernel() {
  GpuKernel kernel{.row = {.name = Rung::name,
                           .summary = Rung::summary,
                           .algorithm = Rung::algorithm,
                           .backward_orders = Rung::backward_orders(),
                           .refusal = [](const AttentionProblem& problem, Direction direction,
                                         const ProgramOptions& options) -> std::optional<std::string> {
                             const auto reason = Rung::reason(problem, direction, options);
                             if (!reason) return std::nullopt;
                             return refusal_sentence(Rung::name, *reason, problem, direction);
                           },
                           .default_options = Rung::default_options,
                           .run = nullptr,
                           .launch_shape = Rung::launch_shape},
                   .reason = Rung::reason,
                   .launch = nullptr};
  if constexpr (kHasCuda) {
    kernel.launch = Rung::launch;
    kernel.row.run = [](const ProgramOptions& options, Direction direction, TensorSet& tensors,
                        TileObserver* observer) {
      static const Kernel row = make_gpu_kernel<Rung>().row;
      run_on_device(row, Rung::launch, options, direction, tensors, observer);
    };
  }
  return kernel;
}

}  // namespace tilescope
