// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/launch.cuh"

namespace tilescope {

void launch_flash1_fp16(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  launch_flash1_as<__half>(program, arguments, stream);
}

}  // namespace tilescope
