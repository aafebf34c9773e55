// SPDX-License-Identifier: Apache-2.0
// gpu:split-k, beside the ladder: FlashAttention's way of sharing a tile out among warps, on the loops of
// FlashAttention-2, so that the two partitions can be compared and nothing else. "Split-K" is what
// FlashAttention-2's paper calls it (section 3.3): a tile's keys over the warps of one CTA. Flash-decoding's
// split of all keys over CTAs (split-KV) is another thing. Plain C++.
#pragma once

#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct SplitK {
  static constexpr std::string_view name = "gpu:split-k";
  static constexpr std::string_view summary =
      "a tile's keys split over the warps, sums through shared memory: what gpu:flash2-mma's split of rows "
      "saves";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int rung = 0;  // forward alone, and a step neither up nor down
  static constexpr int kHeadDim = 64;
  static constexpr int kHeadDims[] = {kHeadDim};
  static constexpr FeatureSet kFeatures{Feature::fp16,     Feature::bf16,          Feature::causal,
                                        Feature::window,   Feature::grouped_heads, Feature::signed_scale,
                                        Feature::bnhd_rows};
  static constexpr Capabilities can{.forward = kFeatures, .backward = {}, .head_dims = kHeadDims};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  static constexpr int kWarps = 4;
  /// One of gpu:flash2-mma's shapes too (flash2_mma_choices.hpp). Each warp takes 16 keys and all 64 rows, so
  /// that a part of O as large as the tile's fills 128 of its registers.
  static constexpr TileShape kTile{64, 64};
  static constexpr int kStages = 2;
  /// Parts of O in shared memory have longer rows: eight rows that are stored at once lie in different banks.
  static constexpr int kPartRow = kHeadDim + 8;
  /// Shared memory: Q, K and V; the warps' parts of O; their maxima or sums of rows. Offsets in bytes.
  struct Layout {
    static constexpr MmaQueryLayout tiles() { return {kTile, kHeadDim, 1, kStages}; }
    static constexpr int parts() { return tiles().end(); }
    static constexpr int rows() { return parts() + 4 * kWarps * kTile.block_m * kPartRow; }
    static constexpr int end() { return rows() + 4 * kWarps * kTile.block_m; }
  };
  static constexpr int kCtasPerSm = 2;
};

}  // namespace tilescope
