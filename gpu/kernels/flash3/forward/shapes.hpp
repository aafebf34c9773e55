// SPDX-License-Identifier: Apache-2.0
// Tile shapes and on-chip layout of flash3: one constexpr choice a pass, shared by the registry row, the
// launch and the kernels. Plain C++.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu_ref/schedule/tile_program.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope {

inline constexpr int kSm90SharedBytes = 227 * 1024;  // a CTA's, of the 228 KiB of an SM

/// How the forward pass stores O.
enum class Flash3Output : std::uint8_t {
  staged,  // through a buffer of its own, by the copy engine
  direct,  // from registers, where shared memory has no place for that buffer
};

/// What is done where a sum tells that a score lies too far above the maximum that its row keeps: see
/// Flash3Rows.
enum class Flash3Scores : std::uint8_t {
  kept,        // they are still in registers: P was put beside them
  recomputed,  // P took their place, for want of registers
};

/// Rows of a q tile of the forward pass in 16 bits: the lower, the less of a device's last wave is lost, and
/// the more often K and V are read.
enum class Flash3Height : std::uint8_t {
  whole,  // 128 to 256
  half,   // 128, where whole ones have 192 or more
  low,    // 64, its keys shared by two warpgroups
};

/// Warps that load a tile of keys in pages, or of values.
inline constexpr int kFlash3PageLoaders = 2;

/// The forward pass: one warpgroup that loads, and one for each 64 rows of block_m that computes.
struct Flash3ForwardShape {
  TileShape tile;
  int head_dim = 0;   // compiled for; smaller ones run padded up on chip
  int kv_stages = 2;  // tiles of K, and of V, in flight or in use
  int q_stages = 1;   // 2: the next q tile arrives while this one is computed
  Flash3Output output = Flash3Output::staged;
  bool ping_pong = true;  // the warpgroups issue their WGMMAs in turn
  Flash3Scores scores = Flash3Scores::kept;
  bool skips = false;        // a warpgroup computes no tile that its own rows do not see; without ping-pong
  bool splits_keys = false;  // the warpgroups share 64 rows, and each sees its part of a tile's keys
  bool overlaps = true;      // a softmax runs beside P V of the tile before, of the same warpgroup
  int value_dim = 0;         // columns of V and O; 0: head_dim
  bool tables = false;       // kv tiles are found in tables (VisitTables), which serve every mask
  bool mods = false;         // scores are modified, each modifier where the problem has it (ScoreMods), ...
  bool caps = false;         // ... a soft cap, too
  bool paged = false;        // keys and values lie in pages (KvPageTable)

  constexpr int v_stages() const { return kv_stages; }
  constexpr int row_groups() const { return tile.block_m / 64; }
  constexpr int consumers() const { return splits_keys ? 2 : row_groups(); }
  constexpr int threads() const { return 128 * (1 + consumers()); }
  /// The keys of a tile that a warpgroup computes with.
  constexpr int own_keys() const { return splits_keys ? tile.block_n / consumers() : tile.block_n; }
  /// What setmaxnreg leaves to loading threads and gives to computing ones: as much as a CTA had at entry.
  constexpr int producer_registers() const { return consumers() == 2 ? 40 : 32; }
  constexpr int consumer_registers() const { return consumers() == 2 ? 232 : consumers() == 3 ? 160 : 112; }

  /// A warpgroup's share of Q, and a warp's of O: they come and go by themselves.
  constexpr gpu::sm90::PanelTile q_tile() const { return {64, head_dim}; }
  constexpr gpu::sm90::PanelTile k_tile() const { return {tile.block_n, head_dim}; }
  constexpr gpu::sm90::PanelTile v_tile() const { return {tile.block_n, values()}; }
  constexpr gpu::sm90::PanelTile out_tile() const { return {16, values()}; }
  constexpr int values() const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr int warps() const { return 4 * consumers(); }
  /// Of a tile, those of a warp that loads.
  constexpr int keys_a_loader() const { return paged ? tile.block_n / kFlash3PageLoaders : tile.block_n; }
  constexpr int q_buffers() const { return q_stages * row_groups(); }
  /// Whether packed heads may be interleaved.
  constexpr bool interleaves() const { return !tables && !mods && !paged && value_dim == 0; }
  constexpr bool operator==(const Flash3ForwardShape&) const = default;
};

/// Packed heads under a mask are interleaved: of each 64 rows the first 64 / group are queries of the group's
/// first head, the next ones the same queries of its second head. So a q tile sees the keys of few queries.
/// A power of two, and pieces of at least eight rows.
constexpr bool flash3_interleaves_heads(std::int64_t group) { return group == 2 || group == 4 || group == 8; }

/// Of modifiers: slope and sink of an item's head, fp32.
inline constexpr int kHeadNumbersBytes = 8;

/// Offsets from the start of a CTA's shared memory; the end of the layout is its size. [bytes]
struct Flash3ForwardLayout {
  gpu::sm90::PipeLayout q, k, v;
  gpu::sm90::PipeLayout
      part;  // where keys are split: O in fp32, maxima and sums of the second part, by thread
  int out = 0;
  int items = 0;   // 16 bytes a Q buffer, and for one ahead
  int visits = 0;  // of tables: a K buffer's tile and the place of its bits, a Q buffer's number of tiles
  int head_numbers = 0;  // of modifiers: slope and sink of a Q buffer's item, and of one that goes to it
  int end = 0;

  constexpr explicit Flash3ForwardLayout(const Flash3ForwardShape& shape) {
    gpu::sm90::SharedPieces shared;
    q = shared.take_buffers(shape.q_stages, shape.q_tile().bytes(), shape.row_groups());
    k = shared.take_buffers(shape.kv_stages, shape.k_tile().bytes());
    v = shared.take_buffers(shape.kv_stages, shape.v_tile().bytes());
    out = shared.take(shape.output == Flash3Output::staged ? shape.warps() * shape.out_tile().bytes() : 0);
    part = shared.take_buffers(1, shape.splits_keys ? 128 * 4 * (shape.values() / 2 + 4) : 0);
    items = shared.take(16 * (shape.q_buffers() + 1));
    visits = shared.take(shape.tables ? 8 * shape.kv_stages + 4 * shape.q_buffers() : 0);
    head_numbers = shared.take(shape.mods ? kHeadNumbersBytes * (shape.q_buffers() + 1) : 0);
    shared.take_barriers(q, k, v, part);
    end = shared.end;
  }
};

/// The head dimensions that have instances of their own.
inline constexpr int kFlash3HeadDims[] = {64, 80, 96, 112, 128, 160, 192, 224, 256};

/// Heads of an L2 swizzle: as many as fit, but no fewer than `least`, and all swizzles alike, since a small
/// last one would end in long tiles.
constexpr int flash3_even_swizzles(std::int64_t fitting, std::int64_t least, std::int64_t heads) {
  const std::int64_t wanted = fitting < least ? least : fitting;
  const std::int64_t most = wanted < heads ? wanted : heads;
  const std::int64_t wished = (heads + most - 1) / most, allowed = heads / least > 1 ? heads / least : 1;
  const std::int64_t swizzles = wished < allowed ? wished : allowed;
  return static_cast<int>((heads + swizzles - 1) / swizzles);
}

inline constexpr int kHopperMultiprocessors = 132;  // of the H100 and H200 that shapes and orders are for

/// Heads of a last swizzle whose longest tile, begun when those before are done, still ends with the others.
/// Up to a seventh of the whole, what the swizzle wins in L2 is more.
/// @param longest, all  pairs of queries and keys, of a tile and of all heads
constexpr std::int64_t flash3_least_heads(std::int64_t longest, std::int64_t all, std::int64_t heads) {
  const double share = static_cast<double>(longest) * kHopperMultiprocessors / static_cast<double>(all);
  if (share < 1.0 / 7) return 1;
  return share >= 1.0 ? heads : 1 + static_cast<std::int64_t>(share * static_cast<double>(heads));
}

/// Heads of an L2 swizzle (TileOrder::head_swizzled), for masked problems: their K and V fit L2 while their q
/// tiles are computed, longest first. On an H200 (causal, TFLOP/s by heads a swizzle): head_dim 128 at 8192
/// keys 4: 704, 8: 718, 16: 705, 32: 679; head_dim 256 2: 672, 4: 714, 8: 734, 16: 730; head_dim 64 8: 517,
/// 16: 541, 32: 531, 64: 493. Where a head has few q tiles, Q and O take as much of L2 as K and V: at 512
/// keys head_dim 128 32: 338, 64: 346, 128: 327, 256: 300; 256 32: 340, 64: 344, 128: 298; at 1024 keys 128
/// 16: 461, 32: 472, 64: 466; 256 16: 473, 32: 492, 64: 446.
/// @param heads  batch x query heads; group  query heads that share K and V; least  see
/// flash3_least_heads()
constexpr int flash3_swizzled_heads(int head_dim, std::int64_t seqlen_k, std::int64_t heads,
                                    std::int64_t group, std::int64_t least = 1) {
  const int mebibytes = (head_dim > 128 ? 64 : 32) / (seqlen_k <= 1024 ? 2 : 1);
  const std::int64_t bytes = std::int64_t{mebibytes} << 20;
  const std::int64_t head_bytes = 2 * 2 * seqlen_k * head_dim;
  return flash3_even_swizzles(bytes / head_bytes * group, least > group ? least : group, heads);
}
static_assert(flash3_swizzled_heads(128, 8192, 32, 1) == 8);
static_assert(flash3_swizzled_heads(256, 8192, 16, 1) == 8);
static_assert(flash3_swizzled_heads(64, 8192, 64, 1) == 16);
static_assert(flash3_swizzled_heads(256, 512, 256, 1) == 64);

/// Whether rows see so few keys, on the mean, that the ends of tiles weigh more than their inside.
/// @param visible_pairs, rows  of all heads
constexpr bool flash3_short_rows(std::int64_t visible_pairs, std::int64_t rows) {
  return visible_pairs <= 1024 * rows;
}

/// Registers bound block_n: of the 64 rows, a thread holds own_keys() / 2 scores, own_keys() / 4 registers of
/// P (twice, if the scores are kept) and head_dim / 2 of O. Shared memory bounds the stages: where tiles are
/// skipped, at least twice as many as a warpgroup skips at one end.
/// @param height  see flash3_forward_way(); where no shape has it, whole
constexpr Flash3ForwardShape flash3_forward_shape(int head_dim, Flash3Height height = Flash3Height::whole) {
  constexpr auto kStaged = Flash3Output::staged, kDirect = Flash3Output::direct;
  constexpr auto kKept = Flash3Scores::kept, kRecomputed = Flash3Scores::recomputed;
  const bool low = height == Flash3Height::low, half = height == Flash3Height::half;
  if (head_dim <= 64 && low) return {{64, 128}, 64, 4, 2, kStaged, false, kKept, false, true};
  if (head_dim <= 64 && half) return {{128, 128}, 64, 4, 2};
  if (head_dim <= 64) return {{256, 64}, 64, 6, 2, kStaged, false, kRecomputed, true};
  if (head_dim <= 96 && low) return {{64, 128}, 96, 2, 2, kDirect, false, kKept, false, true};
  if (head_dim <= 80 && half) return {{128, 128}, 80, 2, 2, kStaged, false, kKept, true};
  if (head_dim <= 96 && half) return {{128, 128}, 96, 2, 2, kStaged, false, kKept, true};
  if (head_dim <= 80) return {{192, 112}, 80, 2, 1, kStaged, false, kRecomputed, true};
  if (head_dim <= 96) return {{192, 96}, 96, 2, 1, kStaged, false, kRecomputed, true};
  if (head_dim <= 128 && low) return {{64, 128}, 128, 2, 2, kDirect, false, kKept, false, true};
  if (head_dim <= 112 && !half) return {{192, 96}, 112, 2, 1, kStaged, false, kRecomputed, true};
  if (head_dim <= 128) return {{128, 128}, 128, 2, 2};
  if (head_dim <= 192 && low) return {{64, 64}, 192, 3, 1, kDirect, false, kKept, false, true};
  if (low) return {{64, 64}, 256, 2, 1, kDirect, false, kKept, false, true};
  if (head_dim <= 160) return {{128, 64}, 160, 3, 1, kDirect, false, kKept, true};
  if (head_dim <= 192) return {{128, 64}, 192, 3, 1, kDirect, false, kKept, true};
  if (head_dim <= 224) return {{128, 64}, 224, 2, 1, kDirect, false};
  return {{128, 64}, 256, 2, 1, kDirect, false};
}
/// Columns of Q and K, and of V and O, of a shape of its own (DeepSeek-V3's prefill). Scores and P are those
/// of head_dim 128, and so is O, in registers; Q and two stages of K and V fill 208 KiB, and leave O no
/// place.
inline constexpr int kFlash3ValuesHeadDim = 192, kFlash3ValuesDim = 128;
constexpr Flash3ForwardShape flash3_values_shape() {
  Flash3ForwardShape shape{{128, 128}, kFlash3ValuesHeadDim, 2, 1, Flash3Output::direct};
  shape.value_dim = kFlash3ValuesDim;
  return shape;
}
struct Flash3ValuesChoice {
  static constexpr Flash3ForwardShape shape = flash3_values_shape();
};
static_assert(Flash3ForwardLayout(flash3_values_shape()).end <= kSm90SharedBytes);

/// Masks beside a band, at head dimensions up to kFlash3TablesHeadDim: tiles of 128 x 128, of whose bits a
/// thread has two rows of 16 bytes each. A warpgroup computes whatever its tile visits.
inline constexpr int kFlash3TablesHeadDim = 128;
constexpr Flash3ForwardShape flash3_table_shape(int head_dim) {
  Flash3ForwardShape shape{{128, 128}, head_dim, head_dim <= 64 ? 4 : 2, 2};
  shape.tables = shape.mods = shape.caps = true;
  return shape;
}
template <int kHeadDim>
struct Flash3TableChoice {
  static constexpr Flash3ForwardShape shape = flash3_table_shape(kHeadDim);
};
static_assert(Flash3ForwardLayout(flash3_table_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_table_shape(128)).end <= kSm90SharedBytes);

/// The whole tiles of head dimensions 64, 128 and 256, for instances that no other head dimension has.
constexpr Flash3ForwardShape flash3_rounded_shape(int head_dim) {
  return flash3_forward_shape(head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256);
}

/// Modifiers of scores where tiles need no tables: flash3_rounded_shape(). Those of 64 have no registers for
/// a soft cap (20 bytes would spill): it takes tables there.
inline constexpr int kFlash3NoCapHeadDim = 64;
constexpr Flash3ForwardShape flash3_mods_shape(int head_dim) {
  Flash3ForwardShape shape = flash3_rounded_shape(head_dim);
  shape.mods = true;
  shape.caps = head_dim > kFlash3NoCapHeadDim;
  return shape;
}
template <int kHeadDim>
struct Flash3ModsChoice {
  static constexpr Flash3ForwardShape shape = flash3_mods_shape(kHeadDim);
};
static_assert(Flash3ForwardLayout(flash3_mods_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_mods_shape(128)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_mods_shape(256)).end <= kSm90SharedBytes);

/// Keys and values in pages: flash3_rounded_shape(), whose keys are a power of two, as those of a page are. A
/// box has the keys of half a tile that lie in one page.
constexpr Flash3ForwardShape flash3_paged_shape(int head_dim) {
  Flash3ForwardShape shape = flash3_rounded_shape(head_dim);
  shape.paged = true;
  return shape;
}
template <int kHeadDim>
struct Flash3PagedChoice {
  static constexpr Flash3ForwardShape shape = flash3_paged_shape(kHeadDim);
};
static_assert(Flash3ForwardLayout(flash3_paged_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_paged_shape(128)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_paged_shape(256)).end <= kSm90SharedBytes);

/// Whether the forward pass of a problem finds its tiles in tables: under masks beside a band.
inline bool flash3_has_tables(const AttentionProblem& problem) {
  return problem.mask.any() || (problem.score_mods.softcap > 0 && problem.head_dim <= kFlash3NoCapHeadDim);
}

/// Whether it modifies scores, or begins rows with a sink.
inline bool flash3_has_mods(const AttentionProblem& problem) { return problem.score_mods.any(); }

/// Whether V has columns of another number than K.
inline bool flash3_has_values(const AttentionProblem& problem) {
  return problem.value_dim() != problem.head_dim;
}
/// Whether such a problem has the shape of its own: where each panel of its tiles has columns inside the
/// tensor. Smaller ones run padded up to it.
inline bool flash3_has_values_shape(const AttentionProblem& problem) {
  const auto fills = [](std::int64_t columns, int compiled) {
    return columns > compiled - 64 && columns <= compiled;
  };
  return flash3_has_values(problem) && fills(problem.head_dim, kFlash3ValuesHeadDim) &&
         fills(problem.value_dim(), kFlash3ValuesDim);
}
inline Flash3ForwardShape flash3_forward_shape(const AttentionProblem& problem,
                                               Flash3Height height = Flash3Height::whole) {
  if (flash3_has_tables(problem)) return flash3_table_shape(problem.head_dim <= 64 ? 64 : 128);
  if (flash3_has_mods(problem)) return flash3_mods_shape(static_cast<int>(problem.head_dim));
  if (problem.page_size > 0) return flash3_paged_shape(static_cast<int>(problem.head_dim));
  if (flash3_has_values_shape(problem)) return flash3_values_shape();
  return flash3_forward_shape(static_cast<int>(problem.head_dim), height);
}

/// Such a shape as a type, for templates.
template <int kHeadDim, bool kLow = false>
struct Flash3ForwardChoice {
  static constexpr Flash3ForwardShape shape =
      flash3_forward_shape(kHeadDim, kLow ? Flash3Height::low : Flash3Height::whole);
};
template <int kHeadDim>
struct Flash3HalfChoice {
  static constexpr Flash3ForwardShape shape = flash3_forward_shape(kHeadDim, Flash3Height::half);
};
static_assert(Flash3ForwardLayout(flash3_forward_shape(64, Flash3Height::half)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(80, Flash3Height::half)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(96, Flash3Height::half)).end <= kSm90SharedBytes);

/// A head dimension's shape without what a variant leaves out.
constexpr Flash3ForwardShape flash3_forward_variant(int head_dim, Variant variant) {
  Flash3ForwardShape shape = flash3_forward_shape(head_dim);
  if (variant == Variant::no_ping_pong || variant == Variant::serial) shape.ping_pong = false;
  if (variant == Variant::no_overlap || variant == Variant::serial) shape.overlaps = false;
  return shape;
}
/// The variants are compiled for one head dimension, in fp16.
inline constexpr int kFlash3VariantHeadDim = 128;
template <Variant kVariant>
struct Flash3ForwardVariant {
  static constexpr Flash3ForwardShape shape = flash3_forward_variant(kFlash3VariantHeadDim, kVariant);
};
static_assert(flash3_forward_shape(kFlash3VariantHeadDim).ping_pong);

static_assert(Flash3ForwardLayout(flash3_forward_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(64, Flash3Height::low)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(80)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(96)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(112)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(128)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(128, Flash3Height::low)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(96, Flash3Height::low)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(192, Flash3Height::low)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(160)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(192)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(224)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(256)).end <= kSm90SharedBytes);
static_assert(Flash3ForwardLayout(flash3_forward_shape(256, Flash3Height::low)).end <= kSm90SharedBytes);

}  // namespace tilescope
