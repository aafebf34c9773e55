// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/launch.cuh"

namespace tilescope {

void launch_combine(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  sm80::dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    launch_decode_pass(sm80::decode_combine<kType, kHeadDim>, program, arguments, stream);
  });
}

void Decode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  if (program.name == PassName::combine) return launch_combine(program, arguments, stream);
  sm80::dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    auto* kernel = arguments.log.states ? sm80::decode_forward<kType, kHeadDim, true>
                                        : sm80::decode_forward<kType, kHeadDim, false>;
    launch_decode_pass(kernel, program, arguments, stream);
  });
}

}  // namespace tilescope
