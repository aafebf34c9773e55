// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/standard/launch.cuh"

namespace tilescope {

void launch_standard_bf16(const TileProgram& program, const KernelArguments& arguments, cudaStream_t stream) {
  launch_standard_as<__nv_bfloat16>(program, arguments, stream);
}

}  // namespace tilescope
