// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/launch.cuh"

namespace tilescope {

void Decode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  sm80::dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_decode<kType, kHeadDim>(program, arguments, stream);
  });
}

void launch_combine(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  Decode::launch(program, arguments, stream);
}

}  // namespace tilescope
