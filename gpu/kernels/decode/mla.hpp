// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode, beside the ladder: decoding out of latent keys (multi-head latent attention with absorbed
// projections, DeepSeek-V2, arXiv:2405.04434, section 2.1). Values are the first columns of the keys, so that
// one tile in shared memory is both, and crosses once. Splits and the pass that combines are gpu:decode's.
// Plain C++.
#pragma once

#include <optional>
#include <string>

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// The forward pass on 16, 32 or 64 rows. Of S each warp has 16 rows and some of a tile's keys, at least 16,
/// so that of 16 rows half of the warps have none; of O all rows and 64 columns. O of 64 rows fills half of
/// an SM's registers, 128 of a thread's: 128 rows would leave room for nothing else.
struct MlaShape {
  int rows = 64;
  /// Tiles of keys in shared memory. Of two one is under way while the other is computed, 72 KiB an SM, where
  /// 4.8 TB/s in 0.7 us are 25. On sm_80 one fits beside 64 rows, which comes between one step and the next.
  int stages = 2;
  static constexpr MlaShape on(int rows, int compute_capability_major) {
    return {.rows = rows, .stages = compute_capability_major >= 9 ? 2 : 1};
  }
  /// Those that fill a tile, or 64.
  static constexpr int rows_for(std::int64_t packed) { return packed <= 16 ? 16 : packed <= 32 ? 32 : 64; }

  static constexpr int kKeys = 64;
  static constexpr int kHeadDim = 576, kValueDim = 512;  // compiled; fewer run padded
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  static constexpr int kWarpColumns = kValueDim / kWarps;
  constexpr TileShape tile() const { return {rows, kKeys}; }
  constexpr int row_groups() const { return rows / 16; }
  constexpr int key_groups() const { return min_of(kWarps / row_groups(), kKeys / 16); }
  constexpr int warp_keys() const { return kKeys / key_groups(); }
  constexpr int score_warps() const { return row_groups() * key_groups(); }

  /// Shared memory, offsets in bytes: Q, the stages, P; what the key groups tell each other of the rows, and
  /// what rows are rescaled by; the pages of the tiles to come (PagesAhead). Behind the last tile O lies over
  /// Q and the stages in fp32.
  static constexpr int kTileBytes = 2 * kKeys * kHeadDim;
  static constexpr int q() { return 0; }
  constexpr int k(int stage) const { return 2 * rows * kHeadDim + stage * kTileBytes; }
  constexpr int p() const { return k(stages); }
  constexpr int exchange() const { return p() + 2 * rows * kKeys; }
  constexpr int factors() const { return exchange() + 4 * key_groups() * rows; }
  constexpr int pages() const { return factors() + 4 * rows; }
  static constexpr int kPagesAhead = 1;                                        // tiles
  static constexpr int kMostPages = kKeys / static_cast<int>(kLeastPageSize);  // of a tile
  constexpr int end() const { return pages() + 4 * 2 * kPagesAhead * kMostPages; }
  static constexpr int kOutRow = kValueDim + 8;  // eight rows that are stored at once lie in different banks
};

struct MlaDecode {
  static constexpr std::string_view name = "gpu:mla-decode";
  static constexpr std::string_view summary =
      "latent keys whose first columns are the values: one tile is both; heads packed, keys split over CTAs";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr int rung = 0;  // forward alone
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int kHeadDims[] = {MlaShape::kHeadDim};
  static constexpr FeatureSet kFeatures{Feature::fp16,        Feature::bf16,          Feature::causal,
                                        Feature::window,      Feature::grouped_heads, Feature::signed_scale,
                                        Feature::key_padding, Feature::split_keys,    Feature::packed_heads,
                                        Feature::paged_keys,  Feature::value_dim,     Feature::shared_kv};
  static constexpr Capabilities can{
      .forward = kFeatures, .backward = {}, .head_dims = kHeadDims, .row_bytes_multiple = 16};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }
  static ProgramOptions default_options(const AttentionProblem&);
  static bool first_choice(const AttentionProblem& problem) { return problem.shared_kv; }
  static std::vector<TileShape> tile_choices(const AttentionProblem&, PassName);
  static LaunchShape launch_shape(const TileProgram&, const Chip&);
  /// Whether the forward pass runs as mla_wgmma/ on a chip.
  static bool by_wgmma(const TileProgram&, const Chip&);
  /// Where it does not, or a build has no code for sm_90a.
  static LaunchShape mma_shape(const TileProgram&, const Chip&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// Of the pass that combines.
  static constexpr int compiled_columns(std::int64_t value_dim) {
    return value_dim <= 256 ? 256 : MlaShape::kValueDim;
  }

  /// Values that are no columns of the keys, and those that it has no instance for.
  static std::optional<std::string> lack(const AttentionProblem&, const ProgramOptions&);
};

}  // namespace tilescope
