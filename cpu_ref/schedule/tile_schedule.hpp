// SPDX-License-Identifier: Apache-2.0
// The single source of truth on tiles: which tiles exist, which a mask leaves to visit, which of those need
// no mask, and in which order they are taken. Nothing else in the project computes a tile bound.
// constexpr, for host and device, without a CUDA include.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TILESCOPE_HOST_DEVICE __host__ __device__
#else
#define TILESCOPE_HOST_DEVICE
#endif

namespace tilescope {

TILESCOPE_HOST_DEVICE constexpr int min_of(int a, int b) { return a < b ? a : b; }
TILESCOPE_HOST_DEVICE constexpr int max_of(int a, int b) { return a > b ? a : b; }
TILESCOPE_HOST_DEVICE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

/// Rows of Q (the papers' Br) and rows of K and V (Bc) that one step works on.
struct TileShape {
  int block_m = 64;
  int block_n = 64;
  constexpr bool operator==(const TileShape&) const = default;
};

/// A window side without a limit. Far beyond any length, so that bounds need no special case, and small
/// enough that the sum of two lengths and a window stays inside 32 bits.
inline constexpr int kUnbounded = 1 << 29;

/// The visible entries of the seqlen_q x seqlen_k score matrix: query i sees the keys
/// [i + offset - left, i + offset + right] that exist. A causal mask is right = 0.
struct VisibleBand {
  int seqlen_q = 1;
  int seqlen_k = 1;
  int left = kUnbounded;
  int right = kUnbounded;  // left + right >= 0

  TILESCOPE_HOST_DEVICE constexpr int offset() const { return seqlen_k - seqlen_q; }
  TILESCOPE_HOST_DEVICE constexpr int first_key(int query) const {
    return max_of(0, query + offset() - left);
  }
  /// Below first_key(query) when the row sees no key.
  TILESCOPE_HOST_DEVICE constexpr int last_key(int query) const {
    return min_of(seqlen_k - 1, query + offset() + right);
  }
  TILESCOPE_HOST_DEVICE constexpr int first_query(int key) const { return max_of(0, key - offset() - right); }
  TILESCOPE_HOST_DEVICE constexpr int last_query(int key) const {
    return min_of(seqlen_q - 1, key - offset() + left);
  }
  /// Precondition: query and key lie inside the matrix.
  TILESCOPE_HOST_DEVICE constexpr bool visible(int query, int key) const {
    return first_key(query) <= key && key <= last_key(query);
  }
  /// The band of a batch entry whose keys from `keys` on are padding. Queries see of the others what they
  /// saw, so that the sides move as the end of the keys does.
  TILESCOPE_HOST_DEVICE constexpr VisibleBand with_keys(int keys) const {
    const int padding = seqlen_k - keys;
    return {seqlen_q, keys, left - padding, right + padding};
  }
  constexpr bool operator==(const VisibleBand&) const = default;
};

/// Consecutive tiles [begin, end) to visit. Those in [full_begin, full_end) lie wholly inside the matrix and
/// wholly in the visible band, so they need no mask; the others need one.
struct TileRange {
  int begin = 0;
  int end = 0;
  int full_begin = 0;
  int full_end = 0;

  TILESCOPE_HOST_DEVICE constexpr int count() const { return end - begin; }
  TILESCOPE_HOST_DEVICE constexpr bool empty() const { return end <= begin; }
  TILESCOPE_HOST_DEVICE constexpr bool full(int tile) const { return full_begin <= tile && tile < full_end; }
  constexpr bool operator==(const TileRange&) const = default;
};

TILESCOPE_HOST_DEVICE constexpr int num_m_blocks(const VisibleBand& band, TileShape tile) {
  return ceil_div(band.seqlen_q, tile.block_m);
}
TILESCOPE_HOST_DEVICE constexpr int num_n_blocks(const VisibleBand& band, TileShape tile) {
  return ceil_div(band.seqlen_k, tile.block_n);
}

namespace detail {
/// Clamps the full range into the visited one; an empty full range becomes [begin, begin).
TILESCOPE_HOST_DEVICE constexpr TileRange tile_range(int begin, int end, int full_begin, int full_end) {
  if (end <= begin) return {begin, begin, begin, begin};
  full_begin = max_of(begin, full_begin);
  full_end = min_of(end, full_end);
  if (full_end <= full_begin) full_begin = full_end = begin;
  return {begin, end, full_begin, full_end};
}
}  // namespace detail

namespace detail {
/// The kv tiles that queries [first_row, last_row] must visit.
/// @param band  or a part of one in a rectangle of the matrix, which has rows of its own and clips their keys
/// @param ragged  whether they are fewer than a tile has rows: then none is full
template <typename Band>
TILESCOPE_HOST_DEVICE constexpr TileRange kv_tiles_of_rows(const Band& band, TileShape tile, int first_row,
                                                           int last_row, bool ragged) {
  const int first = band.first_key(first_row);  // rows shift by one key each: the union has no gap
  const int last = band.last_key(last_row);
  if (last < first) return {};
  const int full_keys = ragged ? 0 : max_of(0, band.last_key(first_row) + 1);
  const int begin = first / tile.block_n;
  const int end = last / tile.block_n + 1;
  return tile_range(begin, end, ceil_div(band.first_key(last_row), tile.block_n), full_keys / tile.block_n);
}
}  // namespace detail

/// The kv tiles that q tile `m_block` must visit.
TILESCOPE_HOST_DEVICE constexpr TileRange kv_tiles(const VisibleBand& band, TileShape tile, int m_block) {
  const int first_row = m_block * tile.block_m;
  const int last_row = min_of(band.seqlen_q, first_row + tile.block_m) - 1;
  return detail::kv_tiles_of_rows(band, tile, first_row, last_row, first_row + tile.block_m > band.seqlen_q);
}

/// Rows or columns [begin, end) of the score matrix.
struct Interval {
  int begin = 0;
  int end = 0;
  constexpr bool operator==(const Interval&) const = default;
};

/// The queries of a q tile whose rows are those of several heads, one head after the other: all of them,
/// where it has rows of two heads.
/// @param packed_rows  of these heads in all
TILESCOPE_HOST_DEVICE constexpr Interval packed_queries(int seqlen_q, TileShape tile, int packed_rows,
                                                        int m_block) {
  const int first = m_block * tile.block_m;
  const int last = min_of(packed_rows, first + tile.block_m) - 1;
  if (first / seqlen_q != last / seqlen_q) return {0, seqlen_q};
  return {first % seqlen_q, last % seqlen_q + 1};
}
/// The kv tiles that such a q tile must visit.
TILESCOPE_HOST_DEVICE constexpr TileRange packed_kv_tiles(const VisibleBand& band, TileShape tile,
                                                          int packed_rows, int m_block) {
  const Interval queries = packed_queries(band.seqlen_q, tile, packed_rows, m_block);
  return detail::kv_tiles_of_rows(band, tile, queries.begin, queries.end - 1,
                                  (m_block + 1) * tile.block_m > packed_rows);
}

namespace detail {
/// The q tiles that keys [first_key, last_key] must visit: the transpose of kv_tiles_of_rows.
/// @param end  none is full unless a whole tile of keys from first_key on ends there or before
template <bool kPadding, typename Band>
TILESCOPE_HOST_DEVICE constexpr TileRange q_tiles_of_keys(const Band& band, TileShape tile, int first_key,
                                                          int last_key, int end) {
  const int first = band.first_query(first_key);
  const int last = band.last_query(last_key);
  if (last < first || (kPadding && last_key < first_key)) return {};
  const bool ragged = first_key + tile.block_n > end;
  const int full_queries = ragged ? 0 : max_of(0, band.last_query(first_key) + 1);
  const int end_tile = last / tile.block_m + 1;
  return tile_range(first / tile.block_m, end_tile, ceil_div(band.first_query(last_key), tile.block_m),
                    full_queries / tile.block_m);
}
}  // namespace detail

/// The q tiles that kv tile `n_block` must visit: the transpose of kv_tiles.
/// @tparam kPadding  whether the tile may be one of padding alone, which nothing visits
template <bool kPadding = false>
TILESCOPE_HOST_DEVICE constexpr TileRange q_tiles(const VisibleBand& band, TileShape tile, int n_block) {
  const int first_key = n_block * tile.block_n;
  const int last_key = min_of(band.seqlen_k, first_key + tile.block_n) - 1;
  return detail::q_tiles_of_keys<kPadding>(band, tile, first_key, last_key, band.seqlen_k);
}

/// Tiles that a mask cuts can be cut finer, into `slices` x `slices` parts, of which those without a visible
/// entry are not computed. Parts are tiles of this shape.
inline constexpr int kMaxDiagonalSlices = 16;
TILESCOPE_HOST_DEVICE constexpr TileShape part_of(TileShape tile, int slices) {
  return {tile.block_m / slices, tile.block_n / slices};
}
/// The keys of the parts that the rows of part `m_part` compute; none beyond the matrix.
TILESCOPE_HOST_DEVICE constexpr Interval computed_keys(const VisibleBand& band, TileShape part, int m_part) {
  if (m_part * part.block_m >= band.seqlen_q) return {};
  const TileRange range = kv_tiles(band, part, m_part);
  return {range.begin * part.block_n, range.end * part.block_n};
}
/// The queries of the parts that the keys of part `n_part` compute.
TILESCOPE_HOST_DEVICE constexpr Interval computed_queries(const VisibleBand& band, TileShape part,
                                                          int n_part) {
  const TileRange range = q_tiles<true>(band, part, n_part);
  return {range.begin * part.block_m, range.end * part.block_m};
}

/// Which tiles one CTA owns while it streams the tiles of the other axis.
enum class Axis : std::uint8_t { q, kv };

/// The order in which CTAs are issued.
enum class TileOrder : std::uint8_t {
  row_major,      // block fastest, then head, then batch
  longest_first,  // head fastest; the blocks with most work first (longest processing time first)
  head_swizzled,  // L2 swizzle: longest_first within as many heads as share the L2 (FlashAttention-3)
};

/// The order in which a CTA walks its inner tiles. A sawtooth goes up and down in turn, so that each wave of
/// CTAs begins with what the one before left in L2 (arXiv:2601.16032).
enum class Scan : std::uint8_t { ascending, descending, sawtooth };

/// A place in the grid: `head` counts over batch * heads of the pass, `wave_parity` over the waves of CTAs.
struct WorkItem {
  int head = 0;
  int block = 0;
  int wave_parity = 0;  // the way that a sawtooth scan goes
  constexpr bool operator==(const WorkItem&) const = default;
};

/// The grid of a pass and the order in which it is issued.
struct Grid {
  int num_blocks = 1;      // tiles of the owned axis
  int num_heads = 1;       // batch * heads * splits
  int swizzled_heads = 1;  // head_swizzled only
  TileOrder order = TileOrder::row_major;
  /// Else in turn: the last block has most work (q tiles under a causal mask), or least and is waited for
  /// (kv tiles of an ordered pass).
  bool last_block_first = false;
  int ctas_per_wave = 1;  // of a sawtooth scan: CTAs that run at once
  int num_splits = 1;     // work items that share a block, which stand side by side

  /// Whether the blocks of a head come from the last one on.
  TILESCOPE_HOST_DEVICE constexpr bool descends() const {
    return last_block_first && order != TileOrder::row_major;
  }
  /// Whether all blocks of a head come before those of the next.
  constexpr bool heads_in_turn() const {
    return order == TileOrder::row_major || (order == TileOrder::head_swizzled && swizzled_heads == 1);
  }
  TILESCOPE_HOST_DEVICE constexpr std::int64_t size() const {
    return static_cast<std::int64_t>(num_blocks) * num_heads;
  }
  /// The `index`-th CTA to be issued; a bijection of [0, size()) onto heads x blocks. A 32-bit index, where
  /// size() allows one, spares a GPU the 64-bit divisions.
  template <typename Index>
  TILESCOPE_HOST_DEVICE constexpr WorkItem item(Index index) const {
    const int wave_parity = static_cast<int>(index / ctas_per_wave % 2);
    if (order == TileOrder::row_major) {
      return {static_cast<int>(index / num_blocks), static_cast<int>(index % num_blocks), wave_parity};
    }
    const int swizzled = order == TileOrder::longest_first ? num_heads : min_of(num_heads, swizzled_heads);
    const Index swizzle_size = static_cast<Index>(swizzled) * num_blocks;
    const int first_head = static_cast<int>(index / swizzle_size) * swizzled;
    const int heads = min_of(swizzled, num_heads - first_head);  // the last swizzle may be smaller
    const Index inside = index % swizzle_size;
    const int rank = static_cast<int>(inside / heads);
    return {first_head + static_cast<int>(inside % heads), descends() ? num_blocks - 1 - rank : rank,
            wave_parity};
  }
};

/// How many heads Q and K, V have.
struct HeadCounts {
  int query = 1;
  int kv = 1;
  int splits =
      1;  // of the query heads that share a key/value head; the other splits are of the streamed axis
  TILESCOPE_HOST_DEVICE constexpr int group_size() const { return query / kv; }
};

/// The heads that a grid counts: query heads, or key/value heads with the group of query heads that read one.
enum class CtaHeads : std::uint8_t { query, kv };

/// What one CTA owns: query heads [first_head, end_head) of `batch`, all of one key/value head, and blocks
/// [first_block, end_block) of the pass's axis.
struct CtaWork {
  int batch = 0;
  int batch_head = 0;  // batch * heads + head, of the heads that the grid counts
  int kv_head = 0;
  int first_head = 0, end_head = 0;
  int first_block = 0, end_block = 0;
  int wave_parity = 0;  // of a sawtooth scan
  int split = 0;        // of the streamed axis
  constexpr bool operator==(const CtaWork&) const = default;
};

/// The one decoding of a grid, on host and device: what belongs to its `index`-th work item. `blocks` of the
/// owned axis each: one, or all of them where one CTA works through a whole head.
/// @tparam kSplits  whether a walk may be split: a kernel that never does spares itself divisions
template <bool kSplits = false, typename Index>
TILESCOPE_HOST_DEVICE constexpr CtaWork cta_work(const Grid& grid, HeadCounts heads, CtaHeads counted,
                                                 int blocks, Index index) {
  WorkItem item = grid.item(index);
  const bool by_kv_head = counted == CtaHeads::kv;
  const int splits = kSplits ? grid.num_splits : 1;
  const int part = kSplits ? item.head % splits : 0;
  item.head /= splits;
  const int heads_here = by_kv_head ? heads.kv : heads.query;
  const int head = item.head % heads_here;
  const int heads_of_cta = by_kv_head ? heads.group_size() / heads.splits : 1;
  const int first_head = (head * heads.splits + part % heads.splits) * heads_of_cta;
  return {item.head / heads_here,
          item.head,
          by_kv_head ? head : head / heads.group_size(),
          first_head,
          first_head + heads_of_cta,
          item.block * blocks,
          (item.block + 1) * blocks,
          item.wave_parity,
          part / heads.splits};
}

/// The inner tile at position `step` of a walk over `range`.
/// @param wave  the CTA's, or its parity; where one CTA makes many walks, their number
TILESCOPE_HOST_DEVICE constexpr int scan_tile(Scan scan, const TileRange& range, int wave, int step) {
  const bool down = scan == Scan::descending || (scan == Scan::sawtooth && wave % 2 == 1);
  return down ? range.end - 1 - step : range.begin + step;
}

}  // namespace tilescope
