// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/combine.cuh"
#include "gpu/kernels/decode/mla_forward.cuh"
#include "gpu/launch/launch.cuh"

namespace tilescope {

namespace {

template <ElementType kType>
void launch_mla(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const AttentionProblem& problem = program.problem;
  const DecodeArguments decode{program.splits, program.pack_gqa ? static_cast<int>(problem.group_size()) : 1,
                               static_cast<int>(problem.batch), static_cast<int>(problem.value_dim())};
  CtaGrid grid = cta_for_each_item(program);
  grid.early = program.name == PassName::combine;
  const LaunchShape shape = MlaDecode::launch_shape(program, {10 * compute_capability_major()});
  const auto launch = [&](auto* kernel) {
    launch_ctas(kernel, program.name, grid, shape, stream, arguments, decode);
  };
  if (program.name == PassName::combine) {
    return decode.columns <= 256 ? launch(sm80::decode_combine<kType, 256>)
                                 : launch(sm80::decode_combine<kType, MlaShape::kValueDim>);
  }
  const bool paged = arguments.kv_pages.entries != nullptr, observed = arguments.log.states != nullptr;
  if (paged) {
    return observed ? launch(sm80::mla_forward<kType, true, true>)
                    : launch(sm80::mla_forward<kType, false, true>);
  }
  observed ? launch(sm80::mla_forward<kType, true, false>) : launch(sm80::mla_forward<kType, false, false>);
}

}  // namespace

void MlaDecode::launch(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  program.problem.dtype == ElementType::fp16 ? launch_mla<ElementType::fp16>(program, arguments, stream)
                                             : launch_mla<ElementType::bf16>(program, arguments, stream);
}

}  // namespace tilescope
