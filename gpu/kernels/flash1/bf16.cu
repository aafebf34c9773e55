// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash1/launch.cuh"

namespace tilescope {

void launch_flash1_bf16(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  launch_flash1_as<__nv_bfloat16>(program, arguments, stream);
}

}  // namespace tilescope
