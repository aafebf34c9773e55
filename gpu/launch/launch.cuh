// SPDX-License-Identifier: Apache-2.0
// The one way in which a pass becomes a launch.
#pragma once

#include <cuda_runtime.h>

#include <limits>

#include "cpu_ref/kernels/kernel.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// Enqueues `kernel` with one CTA for each item of the program's grid, in issue order.
/// @throws BadInput if the grid is too large, DeviceError if the launch is refused.
template <typename... Parameters, typename... Arguments>
void launch_grid(void (*kernel)(Parameters...), const TileProgram& program, LaunchShape shape,
                 cudaStream_t stream, const Arguments&... arguments) {
  constexpr int kSharedBytesWithoutOptIn = 48 * 1024;
  const std::string pass(to_string(program.name));
  if (program.num_ctas() > std::numeric_limits<int>::max()) {
    throw BadInput("grid", std::to_string(program.num_ctas()), "a GPU pass has at most 2147483647 CTAs");
  }
  if (shape.shared_bytes > kSharedBytesWithoutOptIn) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               "asking for " + std::to_string(shape.shared_bytes) + " bytes of shared memory, pass " + pass);
  }
  kernel<<<static_cast<unsigned>(program.num_ctas()), static_cast<unsigned>(shape.threads_per_cta),
           static_cast<std::size_t>(shape.shared_bytes), stream>>>(arguments...);
  check_cuda(cudaGetLastError(), "launching pass " + pass);
}

/// The same for a kernel that takes nothing but the common arguments.
inline void launch_pass(void (*kernel)(KernelArguments), const TileProgram& program, LaunchShape shape,
                        const KernelArguments& arguments, cudaStream_t stream) {
  launch_grid(kernel, program, shape, stream, arguments);
}

}  // namespace tilescope
