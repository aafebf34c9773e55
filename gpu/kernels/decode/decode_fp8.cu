// SPDX-License-Identifier: Apache-2.0
// The forward pass with keys and values in fp8, compiled beside the others.
#include "gpu/kernels/decode/launch.cuh"

namespace tilescope {

void launch_decode_of_fp8_keys(const TileProgram& program, const KernelArguments& arguments,
                               CUstream_st* stream) {
  sm80::dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_decode<kType, kHeadDim, true>(program, arguments, stream);
  });
}

}  // namespace tilescope
