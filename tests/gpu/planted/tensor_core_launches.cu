// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:flash2-mma in the program of planted bugs: fp16, head dimension 64, the fused order.
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash2_mma/dkdv.cuh"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/kernels/flash2_mma/forward.cuh"

namespace tilescope {

/// What an earlier kernel left there must not pass for data that a bug forgets to wait for.
void poison_shared_memory(cudaStream_t stream);

void Flash2Mma::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  poison_shared_memory(stream);
  using enum gpu::Features;
  using gpu::Features;
  constexpr ElementType kType = ElementType::fp16;
  constexpr int kDim = 64;
  if (program.name == PassName::delta) return launch_delta(program, arguments, stream);
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  const bool drops = arguments.dropout.active(), observed = arguments.log.states;
  if (program.name == PassName::forward) {
    const auto kernel = observed && drops ? gpu::flash2_mma_forward<kType, kDim, Features::general_dropout>
                        : observed        ? gpu::flash2_mma_forward<kType, kDim, Features::general>
                        : drops           ? gpu::flash2_mma_forward<kType, kDim, Features::dropout>
                                          : gpu::flash2_mma_forward<kType, kDim, Features::plain>;
    return launch_pass(kernel, program, launch_shape(program), arguments, stream);
  }
  const auto kernel = observed ? gpu::flash2_mma_dkdv<kType, kDim, true, Features::general_dropout>
                      : drops  ? gpu::flash2_mma_dkdv<kType, kDim, true, Features::dropout>
                               : gpu::flash2_mma_dkdv<kType, kDim, true, Features::plain>;
  launch_pass(kernel, program, launch_shape(program), arguments, stream);
}

}  // namespace tilescope
