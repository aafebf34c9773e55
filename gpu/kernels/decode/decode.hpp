// SPDX-License-Identifier: Apache-2.0
// gpu:decode, beside the ladder: few queries and many keys, where the bytes of K and V are the time
// (Flash-Decoding). Several CTAs share the keys of a q tile, whose rows are the query heads of a group packed
// together, and a second launch combines what they leave. Plain C++.
#pragma once

#include <optional>
#include <string>

#include "gpu/registry/gpu_kernel.hpp"

namespace tilescope {

/// The forward pass at a compiled head dimension: every warp has all rows of the q tile and its own keys of a
/// kv tile, so that no fragment of K or V is read by two warps: 16, or 32 where their bytes are half, so that
/// the barriers and chains of products of a step are for 32 KiB.
struct DecodeShape {
  int head_dim = 0;
  bool fp8_keys = false;

  static constexpr int kRows = kCombinedRows;  // of Q: 16 are those of one product of the tensor cores
  constexpr int warp_keys() const { return fp8_keys || head_dim <= 64 ? 32 : 16; }
  constexpr int key_bytes() const { return head_dim * (fp8_keys ? 1 : 2); }
  static constexpr int kPartPadding =
      8;  // eight rows of a part of O that are stored at once lie in different banks

  constexpr int warps() const { return head_dim <= 128 ? 4 : 2; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr TileShape tile() const { return {kRows, warp_keys() * warps()}; }
  /// On Hopper. What a CTA has of a step beside the copies, barriers and short chains of products, lets it
  /// read 45 GB/s on an H200 in tiles of 32 KiB, a third more than an SM's share of the memory: others fill
  /// the gaps.
  constexpr int ctas_per_sm() const { return small_tiles() ? 3 : 2; }
  /// Tiles of K and V in shared memory. All but one are under way while that one is computed: 48 to 64 KiB a
  /// CTA, where 4.8 TB/s in 0.7 us are 25 KiB an SM. They fit the 99 KiB of a CTA on sm_86.
  constexpr int stages() const { return small_tiles() ? 4 : 3; }

  /// Shared memory, offsets in bytes: the stages; the warps' maxima and sums of rows, and the rows' maxima;
  /// then the pages of the tiles to come (PagesAhead), and the descales of fp8 keys and values. Before the
  /// last stage is filled Q lies in it, and behind the last tile the warps' parts of O in all.
  constexpr int k(int stage) const { return stage * 2 * kv_bytes(); }
  constexpr int v(int stage) const { return k(stage) + kv_bytes(); }
  constexpr int q() const { return k(stages() - 1); }
  constexpr int rows() const { return k(stages()); }
  constexpr int pages() const { return rows() + 4 * kRows * (warps() + 1); }
  constexpr int descales() const { return pages() + 4 * 2 * (stages() - 1) * most_pages(); }
  constexpr int end() const { return descales() + (fp8_keys ? 16 : 0); }
  /// Of a tile; 4 entries are loaded at once.
  constexpr int most_pages() const { return max_of(4, tile().block_n / static_cast<int>(kLeastPageSize)); }
  constexpr int part_row() const { return head_dim + kPartPadding; }
  constexpr int part_bytes() const { return 4 * warps() * kRows * part_row(); }

 private:
  constexpr bool small_tiles() const { return fp8_keys && head_dim <= 64; }
  constexpr int kv_bytes() const { return tile().block_n * key_bytes(); }
};

struct Decode {
  static constexpr std::string_view name = "gpu:decode";
  static constexpr std::string_view summary =
      "few queries, many keys: keys split over CTAs, a group's heads in one tile, a second launch combines";
  static constexpr Algorithm algorithm = Algorithm::flash2;
  static constexpr int rung = 0;  // forward alone
  static constexpr MathUnit math_unit = MathUnit::mma_sync;
  static constexpr int kHeadDims[] = {64, 128, 256};
  static constexpr FeatureSet kFeatures{Feature::fp16,         Feature::bf16,          Feature::causal,
                                        Feature::window,       Feature::grouped_heads, Feature::signed_scale,
                                        Feature::key_padding,  Feature::bnhd_rows,     Feature::split_keys,
                                        Feature::packed_heads, Feature::paged_keys,    Feature::fp8_keys,
                                        Feature::descales};
  static constexpr Capabilities can{
      .forward = kFeatures, .backward = {}, .head_dims = kHeadDims, .row_bytes_multiple = 16};
  static constexpr ChipRange chips{.first = 80};
  static std::vector<BackwardOrder> backward_orders() { return {}; }
  static ProgramOptions default_options(const AttentionProblem&);
  /// Where the rows of a group, one a query, fill no more than one tile.
  static bool first_choice(const AttentionProblem&);
  static std::vector<Boxes> boxes(const TileProgram&);
  static LaunchShape launch_shape(const TileProgram&);
  static void launch(const TileProgram&, const KernelArguments&, CUstream_st*);

  /// Of descales it has one a head.
  static std::optional<std::string> lack(const AttentionProblem&, const ProgramOptions&);

  static constexpr int compiled_head_dim(std::int64_t head_dim) {
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  }
  static DecodeShape shape(const AttentionProblem& problem) {
    return {compiled_head_dim(problem.head_dim), is_fp8(problem.kv_type())};
  }
  /// Of the pass that combines: one for each four columns of a q tile.
  static constexpr int combine_threads(int compiled_columns) {
    return combined_rows(compiled_columns) * compiled_columns / 4;
  }
};

/// The forward pass with keys and values in fp8.
void launch_decode_of_fp8_keys(const TileProgram&, const KernelArguments&, CUstream_st*);

/// The pass that combines, for every kernel that splits keys: head dimensions that are multiples of 4.
void launch_combine(const TileProgram&, const KernelArguments&, CUstream_st*);
inline int combine_threads_of(std::int64_t head_dim) {
  return Decode::combine_threads(Decode::compiled_head_dim(head_dim));
}

}  // namespace tilescope
