// SPDX-License-Identifier: Apache-2.0
// gpu:flash3-basic, the fifth rung: its row of the registry. Plain C++.
#pragma once

#include "gpu/kernels/flash3_basic/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct Flash3Basic {
  static constexpr std::string_view name = "gpu:flash3-basic";
  static constexpr std::string_view summary =
      "the first step to Hopper (sm_90a), to be read: TMA by one thread, wgmma from shared memory, and "
      "nothing "
      "else";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr MathUnit math_unit = MathUnit::wgmma;
  static constexpr int rung = 5;
  static constexpr FeatureSet kFeatures{Feature::fp16,     Feature::bf16,          Feature::causal,
                                        Feature::window,   Feature::grouped_heads, Feature::signed_scale,
                                        Feature::bnhd_rows};
  /// The copy engine takes rows of whole 16-byte chunks.
  static constexpr Capabilities can{.forward = kFeatures,
                                    .backward = kFeatures,
                                    .head_dims = flash3_basic::kHeadDims,
                                    .row_bytes_multiple = 16};
  static constexpr ChipRange chips{.first = 90, .last = 90};
  static std::vector<BackwardOrder> backward_orders() { return {BackwardOrder::fused}; }
  static std::vector<Variant> variants() { return {Variant::own, Variant::unspecialised}; }
  static std::optional<std::string> lack(const AttentionProblem&, const ProgramOptions&);
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static WarpWork warp_work(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);
};

}  // namespace tilescope
