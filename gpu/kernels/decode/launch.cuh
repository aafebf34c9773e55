// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:decode's two passes, of one type and compiled head dimension, by the type of its keys.
#pragma once

#include "gpu/kernels/decode/combine.cuh"
#include "gpu/kernels/decode/forward.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

template <ElementType kType, int kHeadDim, bool kFp8Keys>
void launch_decode(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const AttentionProblem& problem = program.problem;
  const DecodeArguments decode{program.splits, program.pack_gqa ? static_cast<int>(problem.group_size()) : 1,
                               static_cast<int>(problem.batch), static_cast<int>(problem.value_dim())};
  CtaGrid grid = cta_for_each_item(program);
  grid.early = program.name == PassName::combine;
  const LaunchShape shape = Decode::launch_shape(program);
  const auto launch = [&](auto* kernel) {
    launch_ctas(kernel, program.name, grid, shape, stream, arguments, decode);
  };
  if constexpr (!kFp8Keys) {
    if (program.name == PassName::combine) {
      return program.splits.count <= sm80::kFewSplits ? launch(sm80::decode_combine<kType, kHeadDim, true>)
                                                      : launch(sm80::decode_combine<kType, kHeadDim, false>);
    }
  }
  const bool paged = arguments.kv_pages.entries != nullptr, observed = arguments.log.states != nullptr;
  if (paged) {
    return observed ? launch(sm80::decode_forward<kType, kHeadDim, kFp8Keys, true, true>)
                    : launch(sm80::decode_forward<kType, kHeadDim, kFp8Keys, false, true>);
  }
  observed ? launch(sm80::decode_forward<kType, kHeadDim, kFp8Keys, true, false>)
           : launch(sm80::decode_forward<kType, kHeadDim, kFp8Keys, false, false>);
}

}  // namespace tilescope
