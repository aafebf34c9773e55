// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/launch.cuh"

namespace tilescope {

void Decode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name != PassName::combine && is_fp8(program.problem.kv_type())) {
    return launch_decode_of_fp8_keys(program, arguments, stream);
  }
  sm80::dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_decode<kType, kHeadDim, false>(program, arguments, stream);
  });
}

void launch_combine(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  Decode::launch(program, arguments, stream);
}

}  // namespace tilescope
