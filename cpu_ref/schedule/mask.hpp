// SPDX-License-Identifier: Apache-2.0
// Which queries of a batch entry see which of its keys, and which tiles hold something that is seen. A mask
// states its regions; all else follows from them, along either axis.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu_ref/schedule/tile_runs.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

/// The part of a band that lies in a rectangle of the score matrix.
struct MaskRegion {
  VisibleBand band;
  Interval queries, keys;

  constexpr int first_key(int query) const { return max_of(keys.begin, band.first_key(query)); }
  constexpr int last_key(int query) const { return min_of(keys.end - 1, band.last_key(query)); }
  constexpr int first_query(int key) const { return max_of(queries.begin, band.first_query(key)); }
  constexpr int last_query(int key) const { return min_of(queries.end - 1, band.last_query(key)); }
};

/// The visible entries of the score matrix of one batch entry, without its padding.
class Mask {
 public:
  /// One run of tiles for each block.
  explicit Mask(const VisibleBand& band);
  /// @param matrix  whose lengths count
  /// @param regions  no two of which have an entry in common
  Mask(const VisibleBand& matrix, std::vector<MaskRegion> regions);

  int seqlen_q() const { return seqlen_q_; }
  int seqlen_k() const { return seqlen_k_; }
  const std::vector<MaskRegion>& regions() const { return regions_; }
  bool visible(int query, int key) const;
  std::int64_t visible_pairs() const;
  /// Queries that see a key, and keys that are seen.
  std::int64_t busy_queries() const;
  std::int64_t busy_keys() const;
  /// Replaces `seen` by the keys that a query sees (the queries that see a key), ascending.
  void keys_of(int query, std::vector<Interval>& seen) const;
  void queries_of(int key, std::vector<Interval>& seen) const;

  /// The kv tiles that q tile `m_block` must visit: those with a visible entry. Full are those that lie
  /// wholly in the matrix and are visible wholly.
  TileRuns kv_tiles(TileShape tile, int m_block) const;
  /// The same of a q tile of packed rows, seqlen_q() of each of several heads one after the other. Where one
  /// holds the end of a head and the beginning of the next, it visits what all queries must.
  TileRuns packed_kv_tiles(TileShape tile, int packed_rows, int m_block) const;
  /// The q tiles that kv tile `n_block` must visit: the transpose of kv_tiles().
  TileRuns q_tiles(TileShape tile, int n_block) const;

 private:
  TileRuns kv_tiles_of(TileShape tile, Interval queries, bool ragged) const;

  int seqlen_q_, seqlen_k_;
  std::vector<MaskRegion> regions_;
};

}  // namespace tilescope
