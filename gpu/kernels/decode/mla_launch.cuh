// SPDX-License-Identifier: Apache-2.0
// The launches of gpu:mla-decode's two passes, of one type.
#pragma once

#include "gpu/kernels/decode/combine.cuh"
#include "gpu/kernels/decode/mla_forward.cuh"
#ifdef TILESCOPE_HAS_SM90
#include "gpu/kernels/decode/mla_wgmma/launch.cuh"
#endif
#include "gpu/launch/launch.cuh"

namespace tilescope {

template <ElementType kType>
void launch_mla(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const AttentionProblem& problem = program.problem;
  const DecodeArguments decode{program.splits, program.pack_gqa ? static_cast<int>(problem.group_size()) : 1,
                               static_cast<int>(problem.batch), static_cast<int>(problem.value_dim())};
  CtaGrid grid = cta_for_each_item(program);
  grid.early = program.name == PassName::combine;
  const Chip chip{10 * compute_capability_major()};
  const auto launch_shaped = [&](auto* kernel, const LaunchShape& shape) {
    launch_ctas(kernel, program.name, grid, shape, stream, arguments, decode);
  };
  const bool paged = arguments.kv_pages.entries != nullptr, observed = arguments.log.states != nullptr;
  if (program.name == PassName::combine) {
    const LaunchShape shape = MlaDecode::launch_shape(program, chip);
    return decode.columns <= 256
               ? launch_shaped(sm80::decode_combine<kType, 256, false>, shape)
               : launch_shaped(sm80::decode_combine<kType, MlaShape::kValueDim, false>, shape);
  }
#ifdef TILESCOPE_HAS_SM90
  if (MlaDecode::by_wgmma(program, chip)) {
    constexpr auto kWgmma =
        kType == ElementType::fp16 ? gpu::sm90::WgmmaType::fp16 : gpu::sm90::WgmmaType::bf16;
    const auto forward =
        paged ? (observed ? launch_mla_wgmma<kWgmma, true, true> : launch_mla_wgmma<kWgmma, true, false>)
              : (observed ? launch_mla_wgmma<kWgmma, false, true> : launch_mla_wgmma<kWgmma, false, false>);
    return forward(program, arguments, decode, stream);
  }
#endif
  const auto launch = [&](auto* kernel) { launch_shaped(kernel, MlaDecode::mma_shape(program, chip)); };
  const auto forward = [&]<int kRows>() {
    if (paged) {
      return observed ? launch(sm80::mla_forward<kType, kRows, true, true>)
                      : launch(sm80::mla_forward<kType, kRows, false, true>);
    }
    observed ? launch(sm80::mla_forward<kType, kRows, true, false>)
             : launch(sm80::mla_forward<kType, kRows, false, false>);
  };
  if (program.tile.block_m == 16) return forward.template operator()<16>();
  if (program.tile.block_m == 32) return forward.template operator()<32>();
  forward.template operator()<64>();
}

}  // namespace tilescope
