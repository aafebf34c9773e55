// SPDX-License-Identifier: Apache-2.0
// Which kernel runs which backward pass of gpu:flash2-simt.
#pragma once

#include <stdexcept>

#include "gpu/kernels/flash2_simt/backward.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

template <bool AllFeatures>
void launch_flash2_simt_backward_build(const TileProgram& program, const KernelArguments& arguments,
                                       cudaStream_t stream) {
  dispatch_head_dim(program.problem.head_dim, [&]<int CompiledDim>() {
    constexpr int kDim = Flash2Simt::padded_dim(CompiledDim);
    constexpr TileShape kTile = Flash2Simt::tiles(kDim).backward, kDqTile = Flash2Simt::tiles(kDim).dq;
    const auto launch = [&](void (*kernel)(KernelArguments)) {
      launch_pass(kernel, program, Flash2Simt::launch_shape(program), arguments, stream);
    };
    constexpr int kM = kTile.block_m, kN = kTile.block_n;
    switch (program.name) {
      case PassName::dkdv:
        return launch(cuda_cores::flash2_simt_kv_backward<kDim, kM, kN, false, AllFeatures>);
      case PassName::dkdvdq:
        return launch(cuda_cores::flash2_simt_kv_backward<kDim, kM, kN, true, AllFeatures>);
      case PassName::dqdkdv:
        return launch(cuda_cores::flash2_simt_q_backward<kDim, kM, kN, true, AllFeatures>);
      case PassName::dq:
        return launch(
            cuda_cores::flash2_simt_q_backward<kDim, kDqTile.block_m, kDqTile.block_n, false, AllFeatures>);
      default:
        throw std::logic_error("gpu:flash2-simt has no pass " + std::string(to_string(program.name)));
    }
  });
}

}  // namespace tilescope
