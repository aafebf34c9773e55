// SPDX-License-Identifier: Apache-2.0
// The forward pass of gpu:flash2-simt without dropout, a negative scale or a tile log.
#include "gpu/kernels/flash2_simt/forward.cuh"
#include "gpu/kernels/flash2_simt/launch.hpp"
#include "gpu/launch/launch.cuh"

namespace tilescope {

void launch_flash2_simt_forward(const TileProgram& program, const KernelArguments& arguments,
                                CUstream_st* stream) {
  dispatch_head_dim(program.problem.head_dim, [&]<int CompiledDim>() {
    constexpr int kDim = Flash2Simt::padded_dim(CompiledDim);
    constexpr TileShape kTile = Flash2Simt::tiles(kDim).forward;
    launch_pass(cuda_cores::flash2_simt_forward<kDim, kTile.block_m, kTile.block_n, false>, program,
                Flash2Simt::launch_shape(program), arguments, stream);
  });
}

}  // namespace tilescope
