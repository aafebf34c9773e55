// SPDX-License-Identifier: Apache-2.0
// gpu:flash1-mma, beside the ladder: FlashAttention-1's order on the tiles, warps and tensor-core products of
// gpu:flash2-mma, so that the two orders can be compared and nothing else. Plain C++.
#pragma once

#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct Flash1Mma {
  static constexpr std::string_view name = "gpu:flash1-mma";
  static constexpr std::string_view summary =
      "FlashAttention on gpu:flash2-mma's tiles and tensor cores, forward alone: what the order costs";
  static constexpr Algorithm algorithm = Algorithm::flash1;
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int rung = 0;  // forward alone
  static constexpr int kHeadDims[] = {64, 128};
  static constexpr FeatureSet kFeatures{Feature::fp16,     Feature::bf16,          Feature::causal,
                                        Feature::window,   Feature::grouped_heads, Feature::signed_scale,
                                        Feature::bnhd_rows};
  static constexpr Capabilities can{
      .forward = kFeatures, .backward = {}, .head_dims = kHeadDims, .row_bytes_multiple = 16};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<TileShape> tile_choices(const AttentionProblem&, PassName);
  static constexpr bool tiles_of_tuner = true;
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// Shared memory: K and V, which stay for all of Q, and two tiles of Q. Offsets in bytes.
  struct Layout {
    TileShape tile;
    int head_dim = 0;
    constexpr int k() const { return 0; }
    constexpr int v() const { return 2 * tile.block_n * head_dim; }
    constexpr int q(int stage) const { return 2 * v() + stage * 2 * tile.block_m * head_dim; }
    constexpr int end() const { return q(2); }
  };
  static constexpr Layout layout(const MmaForwardShape& shape, int head_dim) {
    return {shape.tile, head_dim};
  }

  /// The shape of gpu:flash2-mma first, then Algorithm 1's min(Bc, d) queries by Bc keys for several Bc,
  /// which show what a larger block saves. 16 rows a warp.
  static constexpr MmaChoices<MmaForwardShape> choices(int head_dim) {
    using Shape = MmaForwardShape;
    const Shape own = mma_forward_shape(head_dim);
    if (head_dim <= 64) {
      return {own, Shape{{32, 32}, 2, 2}, Shape{{64, 64}, 4, 2}, Shape{{64, 128}, 4, 2},
              Shape{{64, 256}, 4, 2}};
    }
    return {own, Shape{{32, 32}, 2, 2}, Shape{{64, 64}, 4, 2}, Shape{{64, 128}, 4, 2}};
  }
};

}  // namespace tilescope
