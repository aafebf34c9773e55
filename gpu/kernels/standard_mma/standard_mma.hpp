// SPDX-License-Identifier: Apache-2.0
// gpu:standard-mma, beside the ladder: standard attention on the tiles, warps and tensor-core products of
// gpu:flash2-mma, so that the orders can be compared and nothing else. Plain C++.
#pragma once

#include <algorithm>

#include "gpu/kernels/flash2_mma/shapes.hpp"
#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

struct StandardMma {
  static constexpr std::string_view name = "gpu:standard-mma";
  static constexpr std::string_view summary =
      "standard attention on gpu:flash2-mma's tiles and tensor cores: what S and P in device memory cost";
  static constexpr Algorithm algorithm = Algorithm::standard;
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int rung = 0;
  static constexpr int kHeadDims[] = {64, 128};
  static constexpr FeatureSet kFeatures{Feature::fp16,     Feature::bf16,          Feature::causal,
                                        Feature::window,   Feature::grouped_heads, Feature::signed_scale,
                                        Feature::bnhd_rows};
  static constexpr Capabilities can{
      .forward = kFeatures, .backward = kFeatures, .head_dims = kHeadDims, .row_bytes_multiple = 16};
  static constexpr Arithmetic arithmetic{.stores_scores = true};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }
  static ProgramOptions default_options(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// Of all passes; as many CTAs share an SM.
  static constexpr MmaForwardShape shape(int head_dim) { return mma_forward_shape(head_dim); }

  /// Shared memory of a product, two stages of what it streams: of Q K^T and dO V^T the left operand's tile,
  /// tiles of the right one's, and the product's tile on its way out; of the others a tile of the N x N
  /// matrix and one of the right operand's rows a stage. Offsets in bytes.
  struct Layout {
    TileShape tile;
    int head_dim = 0;

    constexpr int left() const { return 0; }
    constexpr int right(int stage) const { return query_bytes() + stage * key_bytes(); }
    constexpr int product() const { return right(2); }

    constexpr int matrix(int stage) const { return stage * matrix_bytes(); }
    constexpr int rows(int stage) const {
      return 2 * matrix_bytes() + stage * std::max(query_bytes(), key_bytes());
    }
    constexpr int end() const { return std::max(product() + matrix_bytes(), rows(2)); }

   private:
    constexpr int query_bytes() const { return 2 * tile.block_m * head_dim; }
    constexpr int key_bytes() const { return 2 * tile.block_n * head_dim; }
    constexpr int matrix_bytes() const { return 2 * tile.block_m * tile.block_n; }
  };
  static constexpr Layout layout(int head_dim) { return {shape(head_dim).tile, head_dim}; }
};

}  // namespace tilescope
