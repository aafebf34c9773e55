// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash1 for one element type, each in a .cu file of its own.
#pragma once

#include "gpu/kernels/flash1_backward.cuh"
#include "gpu/kernels/flash1_forward.cuh"
#include "gpu/launch.cuh"

namespace tilescope {

/// The pass forward or dkdvdq.
template <typename Element, int Dim>
void launch_flash1_pass(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  constexpr Flash1::PassShape kForward = Flash1::shapes(Dim).forward;
  constexpr Flash1::PassShape kBackward = Flash1::shapes(Dim).backward;
  const auto kernel =
      program.name == PassName::forward
          ? simt::flash1_forward<Element, Dim, kForward.tile.block_m, kForward.tile.block_n, kForward.groups>
          : simt::flash1_backward<Element, Dim, kBackward.tile.block_m, kBackward.tile.block_n,
                                  kBackward.groups>;
  launch_pass(kernel, program, Flash1::launch_shape(program), arguments, stream);
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

void launch_flash1_fp32(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_flash1_fp16(const TileProgram&, const KernelArguments&, cudaStream_t);
void launch_flash1_bf16(const TileProgram&, const KernelArguments&, cudaStream_t);

}  // namespace tilescope
