// SPDX-License-Identifier: Apache-2.0
// gpu:flash3, the sixth rung: its row of the registry. Plain C++; the tile shapes are in forward/shapes.hpp
// and backward/shapes.hpp.
#pragma once

#include "gpu/kernels/flash3/backward/shapes.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"
#include "gpu/kernels/flash3/fp8/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct Flash3 {
  static constexpr std::string_view name = "gpu:flash3";
  static constexpr std::string_view summary =
      "FlashAttention-3 on Hopper (sm_90a), fp16 and bf16, forward in fp8: TMA, wgmma, a warpgroup that "
      "loads "
      "for those that compute";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr MathUnit math_unit = MathUnit::wgmma;
  static constexpr int rung = 6;
  static constexpr bool on_ranks = true;
  static constexpr FeatureSet kFeatures{Feature::fp16,     Feature::bf16,          Feature::causal,
                                        Feature::window,   Feature::grouped_heads, Feature::signed_scale,
                                        Feature::bnhd_rows};
  /// The copy engine takes rows of whole 16-byte chunks: head dimensions that are multiples of 8, in fp8
  /// of 16.
  static constexpr Capabilities can{
      .forward = kFeatures | FeatureSet{Feature::fp8e4m3, Feature::fp8e5m2, Feature::descales,
                                        Feature::split_keys, Feature::packed_heads, Feature::value_dim,
                                        Feature::mask_rules, Feature::softcap, Feature::alibi,
                                        Feature::learned_sink, Feature::paged_keys},
      .backward = kFeatures | FeatureSet{Feature::query_splits, Feature::mask_rules, Feature::learned_sink},
      .head_dims = kFlash3HeadDims,
      .row_bytes_multiple = 16};
  static constexpr ChipRange chips{.first = 90, .last = 90};
  /// P is bounded as forward/softmax.cuh and fp8/softmax.cuh have it.
  static constexpr Arithmetic arithmetic{.rescaling = Rescaling::conditional,
                                         .fp8_sum_error = 0x1p-11,
                                         .largest_prob = 4096,
                                         .largest_e4m3_prob = 448.0 / (1 << kFlash3E4m3Power),
                                         .largest_e5m2_prob = 7,
                                         .e4m3_prob_log2 = kFlash3E4m3Power};
  static std::vector<Variant> variants() {
    return {Variant::own, Variant::no_ping_pong, Variant::no_overlap, Variant::serial};
  }
  static std::vector<Fp8Sums> fp8_sums() { return {Fp8Sums::two_level, Fp8Sums::fast}; }
  /// A kv tile that waits for others polls a flag. No closed form counts these reads; the ordered pass has
  /// most of them.
  static std::vector<BackwardOrder> backward_orders() {
    return {BackwardOrder::fused, BackwardOrder::ordered};
  }
  /// See flash3_short_rows().
  static bool short_rows(const AttentionProblem&);
  static ProgramOptions default_options(const AttentionProblem&);
  /// Forward these are all heights of q tiles.
  static std::vector<TileShape> tile_choices(const AttentionProblem&, PassName);
  /// Heads are packed in 16-bit types alone, and under a mask only in groups that can be interleaved.
  static std::optional<std::string> lack(const AttentionProblem&, const ProgramOptions&);
  /// Refuses masks of tables at wide heads and in the ordered pass; there learned sinks too, since CTAs of
  /// delta add their gradients as they come.
  static std::optional<std::string> backward_lack(const AttentionProblem&, const ProgramOptions&);
  /// One instance of each pass finds its tiles in tables: under a mask that is no band, and forward with a
  /// soft cap at small head dimensions.
  static int bit_reads(const TileProgram&);
  /// Those that produce() and produce_tiles() ask for.
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static WarpWork warp_work(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);
};

}  // namespace tilescope
