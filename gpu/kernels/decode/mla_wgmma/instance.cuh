// SPDX-License-Identifier: Apache-2.0
// What each instance of gpu:mla-decode's forward pass on Hopper is compiled from.
#pragma once

#include "gpu/kernels/decode/mla_wgmma/forward.cuh"
#include "gpu/kernels/decode/mla_wgmma/launch.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

template <gpu::sm90::WgmmaType kType, bool kPaged, bool kObserved>
void launch_mla_wgmma(const TileProgram& program, const KernelArguments& arguments,
                      const DecodeArguments& decode, CUstream_st* stream) {
  launch_grid(mla_wgmma::mla_wgmma_forward<kType, kPaged, kObserved>, program,
              {MlaWgmmaShape::kThreads, MlaWgmmaShape::end()}, stream, arguments, decode,
              static_cast<int>(program.tile.block_m));
}

}  // namespace tilescope
