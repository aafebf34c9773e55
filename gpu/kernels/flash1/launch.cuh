// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash1 for one element type, each in a .cu file of its own.
#pragma once

#include "gpu/kernels/flash1/backward.cuh"
#include "gpu/kernels/flash1/forward.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

/// The pass forward or dkdvdq. `AllFeatures`: dropout, a negative scale and the tile log.
template <typename Element, int Dim, bool AllFeatures>
void launch_flash1_pass(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  constexpr TileShape kForward = Flash1::shapes(Dim).forward, kBackward = Flash1::shapes(Dim).backward;
  const auto kernel =
      program.name == PassName::forward
          ? cuda_cores::flash1_forward<Element, Dim, kForward.block_m, kForward.block_n,
                                       Flash1::kForwardGroups, AllFeatures>
          : cuda_cores::flash1_backward<Element, Dim, kBackward.block_m, kBackward.block_n, AllFeatures>;
  launch_pass(kernel, program, Flash1::launch_shape(program), arguments, stream);
}
template <typename Element, int Dim>
void launch_flash1_pass(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  const bool all_features = arguments.need_all_features();
  (all_features ? launch_flash1_pass<Element, Dim, true>
                : launch_flash1_pass<Element, Dim, false>)(program, arguments, stream);
}

template <typename Element>
void launch_flash1_as(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  switch (Flash1::padded_dim(program.problem.head_dim)) {
    case 64:
      return launch_flash1_pass<Element, 64>(program, arguments, stream);
    case 128:
      return launch_flash1_pass<Element, 128>(program, arguments, stream);
    default:
      return launch_flash1_pass<Element, 256>(program, arguments, stream);
  }
}

/// Tiles other than the kernel's own, without dropout, a negative scale and the tile log.
void launch_flash1_tuned(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_flash1_fp32(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_flash1_fp16(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_flash1_bf16(const TileProgram&, const KernelArguments&, cudaStream_t);

}  // namespace tilescope
