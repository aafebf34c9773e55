// SPDX-License-Identifier: Apache-2.0
// The backward passes of gpu:flash2-simt with dropout, a negative scale and a tile log.
#include "gpu/kernels/flash2_simt/backward_launch.cuh"
#include "gpu/kernels/flash2_simt/launch.hpp"

namespace tilescope {

void launch_flash2_simt_backward_all_features(const TileProgram& program, const KernelArguments& arguments,
                                              CUstream_st* stream) {
  launch_flash2_simt_backward_build<true>(program, arguments, stream);
}

}  // namespace tilescope
