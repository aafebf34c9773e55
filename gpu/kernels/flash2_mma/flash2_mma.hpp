// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, the fourth rung: its row of the registry. Plain C++; the tile shapes are in
// flash2_mma_shapes.hpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct Flash2Mma {
  static constexpr std::string_view name = "gpu:flash2-mma";
  static constexpr std::string_view summary =
      "FlashAttention-2 on sm_80 tensor cores, fp16 and bf16: mma.sync, ldmatrix, cp.async";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int rung = 4;
  static constexpr bool on_ranks = true;
  static constexpr FeatureSet kFeatures{Feature::fp16,         Feature::bf16,          Feature::causal,
                                        Feature::window,       Feature::grouped_heads, Feature::dropout,
                                        Feature::signed_scale, Feature::key_padding,   Feature::bnhd_rows,
                                        Feature::value_dim};
  static constexpr FeatureSet kVaried{Feature::mask_rules, Feature::softcap, Feature::alibi,
                                      Feature::learned_sink, Feature::log_bias};
  static constexpr Capabilities can{.forward = kFeatures | kVaried | FeatureSet{Feature::paged_keys},
                                    .backward = kFeatures | kVaried,
                                    .head_dims = kMmaHeadDims};
  static constexpr ChipRange chips{.first = 80};
  static constexpr int smallest_part = 16;  // rows of a product's fragments
  static constexpr FeatureSet lacks_in_parts = kVaried | FeatureSet{Feature::dropout};
  /// What it can do with keys and values that lie one after the other alone.
  static constexpr FeatureSet kLacksInPages = kVaried | FeatureSet{Feature::dropout, Feature::value_dim};
  static std::vector<BackwardOrder> backward_orders();
  static std::vector<Variant> variants() { return {Variant::own, Variant::normalised}; }
  /// Why it does not read a problem's pages, or has not the variant.
  static std::optional<std::string> lack(const AttentionProblem&, const ProgramOptions&);
  /// 0 but for problems with what few have, for which one instance finds its tiles in tables.
  static int bit_reads(const TileProgram&);
  /// Numbers of heads, each of which is asked for by itself.
  static std::vector<Boxes> boxes(const TileProgram&);
  static ProgramOptions default_options(const AttentionProblem&);
  /// The tile shapes that a pass is compiled for, its own choice first.
  static std::vector<TileShape> tile_choices(const AttentionProblem&, PassName);
  static constexpr bool tiles_of_tuner = true;
  /// The same with other warps and stages.
  static std::vector<PassChoice> pass_choices(const AttentionProblem&, PassName);
  /// Where the shared memory of a chip is too small, tiles are not double-buffered.
  static LaunchShape launch_shape(const TileProgram&, const Chip&);
  static WarpWork warp_work(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);
};

/// Whether the instances of kMmaValueDims run a pass, unless it is observed or its rows lie askew.
bool takes_mma_values(const TileProgram& program);

/// The threads and shared memory of a pass on a device of that compute capability.
/// @param by_values  whether the instances of kMmaValueDims run it
LaunchShape flash2_mma_launch_shape(const TileProgram& program, int compute_capability_major, bool by_values);

}  // namespace tilescope
