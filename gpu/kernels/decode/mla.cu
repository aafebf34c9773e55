// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/mla_launch.cuh"

namespace tilescope {

void MlaDecode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  program.problem.dtype == ElementType::fp16 ? launch_mla<ElementType::fp16>(program, arguments, stream)
                                             : launch_mla<ElementType::bf16>(program, arguments, stream);
}

}  // namespace tilescope
