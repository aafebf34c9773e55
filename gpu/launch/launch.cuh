// SPDX-License-Identifier: Apache-2.0
// The one way in which a pass becomes a launch.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "cpu_ref/kernels/kernel.hpp"
#include "gpu/launch/check_cuda.hpp"
#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope {

/// The CTAs of a launch. One a work item in most passes; fewer where CTAs are persistent and take the items
/// in turn. Tile logs and step clocks are by work item, of which a pass has num_ctas().
struct CtaGrid {
  dim3 ctas;
  bool early = false;  // may begin before the kernel before it has ended, for which it waits by itself

  std::int64_t size() const { return std::int64_t{ctas.x} * ctas.y * ctas.z; }
};

/// One CTA for each work item of the program, in issue order.
/// @throws BadInput if there are too many
inline CtaGrid cta_for_each_item(const TileProgram& program) {
  if (program.num_ctas() > std::numeric_limits<int>::max()) {
    throw BadInput("grid", std::to_string(program.num_ctas()), "a GPU pass has at most 2147483647 CTAs");
  }
  return {.ctas = dim3(static_cast<unsigned>(program.num_ctas()))};
}

/// Persistent CTAs: one on each of `sms` multiprocessors, or fewer where there are fewer work items.
inline CtaGrid persistent_ctas(std::int64_t items, int sms) {
  return {.ctas = dim3(static_cast<unsigned>(std::min<std::int64_t>(items, sms)))};
}

/// Multiprocessors of the current device. @throws as check_cuda
inline int multiprocessors() {
  int device = 0, sms = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  check_cuda(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device), "counting SMs");
  return sms;
}

/// Of the current device: 9 of 9.0. @throws as check_cuda
inline int compute_capability_major() {
  int device = 0, major = 0;
  check_cuda(cudaGetDevice(&device), "asking for the current device");
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
             "asking for the compute capability");
  return major;
}

/// Enqueues `kernel`, whose parameters the arguments become: the common ones, and whatever else it takes,
/// tensor maps (as `const __grid_constant__ CUtensorMap`) among it.
/// @throws DeviceError if the launch is refused
template <typename... Parameters, typename... Arguments>
void launch_ctas(void (*kernel)(Parameters...), PassName pass_name, const CtaGrid& grid, LaunchShape shape,
                 cudaStream_t stream, const Arguments&... arguments) {
  constexpr int kSharedBytesWithoutOptIn = 48 * 1024;
  const std::string pass(to_string(pass_name));
  if (shape.shared_bytes > kSharedBytesWithoutOptIn) {
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               "asking for " + std::to_string(shape.shared_bytes) + " bytes of shared memory, pass " + pass);
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.ctas;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads_per_cta));
  config.dynamicSmemBytes = static_cast<std::size_t>(shape.shared_bytes);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = grid.early ? 1 : 0;
  check_cuda(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             "launching pass " + pass);
}

/// The same with one CTA for each work item.
/// @throws BadInput if the grid is too large
template <typename... Parameters, typename... Arguments>
void launch_grid(void (*kernel)(Parameters...), const TileProgram& program, LaunchShape shape,
                 cudaStream_t stream, const Arguments&... arguments) {
  launch_ctas(kernel, program.name, cta_for_each_item(program), shape, stream, arguments...);
}

/// The same for a kernel that takes nothing but the common arguments.
inline void launch_pass(void (*kernel)(KernelArguments), const TileProgram& program, LaunchShape shape,
                        const KernelArguments& arguments, cudaStream_t stream) {
  launch_grid(kernel, program, shape, stream, arguments);
}

}  // namespace tilescope
