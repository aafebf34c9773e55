// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/launch.cuh"

namespace tilescope {

void launch_flash1_fp32(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  launch_flash1_as<float>(program, arguments, stream);
}

}  // namespace tilescope
