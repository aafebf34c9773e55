// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:decode's two passes, of one type and compiled head dimension.
#pragma once

#include "gpu/kernels/decode/combine.cuh"
#include "gpu/kernels/decode/forward.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

/// @param kernel  of either pass
template <typename KernelFunction>
void launch_decode_pass(KernelFunction* kernel, const TileProgram& program, const KernelArguments& arguments,
                        CUstream_st* stream) {
  const AttentionProblem& problem = program.problem;
  const DecodeArguments decode{program.splits, program.pack_gqa ? static_cast<int>(problem.group_size()) : 1,
                               static_cast<int>(problem.batch)};
  CtaGrid grid = cta_for_each_item(program);
  grid.early = program.name == PassName::combine;
  launch_ctas(kernel, program.name, grid, Decode::launch_shape(program), stream, arguments, decode);
}

}  // namespace tilescope
