// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/mask.hpp"

#include <algorithm>
#include <utility>

namespace tilescope {
namespace {

Interval common_part(Interval a, Interval b) { return {max_of(a.begin, b.begin), min_of(a.end, b.end)}; }

/// Ascending, those that touch as one.
void join(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::size_t joined = 0;
  for (const Interval& next : intervals) {
    if (joined > 0 && intervals[joined - 1].end == next.begin) {
      intervals[joined - 1].end = next.end;
    } else {
      intervals[joined++] = next;
    }
  }
  intervals.resize(joined);
}

/// How many rows of a flag are set.
std::int64_t count_set(const std::vector<bool>& flags) {
  return std::count(flags.begin(), flags.end(), true);
}

/// A region and what a block visits of it.
struct Visit {
  const MaskRegion* region;
  TileRange tiles;
};

/// Visible entries of the regions inside a rectangle.
std::int64_t entries_in(const std::vector<Visit>& visits, Interval queries, Interval keys) {
  std::int64_t entries = 0;
  for (const Visit& visit : visits) {
    const Interval rows = common_part(queries, visit.region->queries);
    for (int i = rows.begin; i < rows.end; ++i) {
      const int first = max_of(keys.begin, visit.region->first_key(i));
      entries += max_of(0, min_of(keys.end - 1, visit.region->last_key(i)) - first + 1);
    }
  }
  return entries;
}

/// Collects pieces of runs, which come in order, each of full tiles or of partial ones.
class RunBuilder {
 public:
  void add(int begin, int end, bool full) {
    const bool touches = run_.end == begin && !run_.empty();
    const bool has_full = run_.full_begin < run_.full_end;
    if (!touches || (full && has_full && run_.full_end != begin)) {
      flush();
      run_ = {begin, begin, begin, begin};
    }
    if (full) {
      if (run_.full_begin == run_.full_end) run_.full_begin = begin;
      run_.full_end = end;
    }
    run_.end = end;
  }
  TileRuns take() {
    flush();
    return std::move(runs_);
  }

 private:
  void flush() {
    if (!run_.empty()) runs_.add(detail::tile_range(run_.begin, run_.end, run_.full_begin, run_.full_end));
  }
  TileRange run_;
  TileRuns runs_;
};

/// What is visited of several regions as runs.
/// @param whole  whether a tile in which several regions have a part is visible wholly
template <typename Whole>
TileRuns join_visits(const std::vector<Visit>& visits, Whole&& whole) {
  if (visits.empty()) return TileRange{};
  if (visits.size() == 1) return visits[0].tiles;
  std::vector<int> edges;
  for (const auto& [region, tiles] : visits) {
    edges.insert(edges.end(), {tiles.begin, tiles.full_begin, tiles.full_end, tiles.end});
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  RunBuilder runs;
  for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
    const int begin = edges[i], end = edges[i + 1];
    int regions = 0;
    bool full = false;
    for (const auto& [region, tiles] : visits) {
      regions += tiles.begin <= begin && begin < tiles.end;
      full = full || tiles.full(begin);
    }
    if (regions == 0) continue;
    if (full || regions == 1) {
      runs.add(begin, end, full);
      continue;
    }
    for (int tile = begin; tile < end; ++tile) runs.add(tile, tile + 1, whole(tile));
  }
  return runs.take();
}

}  // namespace

Mask::Mask(const VisibleBand& band) : Mask(band, {{band, {0, band.seqlen_q}, {0, band.seqlen_k}}}) {}

Mask::Mask(const VisibleBand& matrix, std::vector<MaskRegion> regions)
    : seqlen_q_(matrix.seqlen_q), seqlen_k_(matrix.seqlen_k), regions_(std::move(regions)) {
  for (MaskRegion& region : regions_) {
    region.queries = common_part(region.queries, {0, seqlen_q_});
    region.keys = common_part(region.keys, {0, seqlen_k_});
  }
}

bool Mask::visible(int query, int key) const {
  return std::any_of(regions_.begin(), regions_.end(), [=](const MaskRegion& region) {
    return region.queries.begin <= query && query < region.queries.end && region.first_key(query) <= key &&
           key <= region.last_key(query);
  });
}

std::int64_t Mask::visible_pairs() const {
  std::int64_t pairs = 0;
  for (const MaskRegion& region : regions_) {
    for (int i = region.queries.begin; i < region.queries.end; ++i) {
      pairs += max_of(0, region.last_key(i) - region.first_key(i) + 1);
    }
  }
  return pairs;
}

std::int64_t Mask::busy_queries() const {
  std::vector<bool> busy(static_cast<std::size_t>(seqlen_q_));
  for (const MaskRegion& region : regions_) {
    for (int i = region.queries.begin; i < region.queries.end; ++i) {
      if (region.first_key(i) <= region.last_key(i)) busy[static_cast<std::size_t>(i)] = true;
    }
  }
  return count_set(busy);
}

std::int64_t Mask::busy_keys() const {
  std::vector<bool> busy(static_cast<std::size_t>(seqlen_k_));
  for (const MaskRegion& region : regions_) {
    for (int j = region.keys.begin; j < region.keys.end; ++j) {
      if (region.first_query(j) <= region.last_query(j)) busy[static_cast<std::size_t>(j)] = true;
    }
  }
  return count_set(busy);
}

void Mask::keys_of(int query, std::vector<Interval>& seen) const {
  seen.clear();
  for (const MaskRegion& region : regions_) {
    if (query < region.queries.begin || query >= region.queries.end) continue;
    const Interval keys{region.first_key(query), region.last_key(query) + 1};
    if (keys.begin < keys.end) seen.push_back(keys);
  }
  join(seen);
}

void Mask::queries_of(int key, std::vector<Interval>& seen) const {
  seen.clear();
  for (const MaskRegion& region : regions_) {
    if (key < region.keys.begin || key >= region.keys.end) continue;
    const Interval queries{region.first_query(key), region.last_query(key) + 1};
    if (queries.begin < queries.end) seen.push_back(queries);
  }
  join(seen);
}

TileRuns Mask::kv_tiles_of(TileShape tile, Interval queries, bool ragged) const {
  std::vector<Visit> visits;
  for (const MaskRegion& region : regions_) {
    const Interval rows = common_part(queries, region.queries);
    if (rows.end <= rows.begin) continue;
    const TileRange tiles =
        detail::kv_tiles_of_rows(region, tile, rows.begin, rows.end - 1, ragged || rows != queries);
    if (tiles.empty()) continue;
    if (regions_.size() == 1) return tiles;
    visits.push_back({&region, tiles});
  }
  return join_visits(visits, [&](int n_block) {
    const Interval keys{n_block * tile.block_n, (n_block + 1) * tile.block_n};
    const std::int64_t rows = queries.end - queries.begin;
    return !ragged && entries_in(visits, queries, keys) == rows * tile.block_n;
  });
}

TileRuns Mask::kv_tiles(TileShape tile, int m_block) const {
  const int first = m_block * tile.block_m, end = min_of(seqlen_q_, first + tile.block_m);
  return kv_tiles_of(tile, {first, end}, first + tile.block_m > seqlen_q_);
}

TileRuns Mask::packed_kv_tiles(TileShape tile, int packed_rows, int m_block) const {
  return kv_tiles_of(tile, packed_queries(seqlen_q_, tile, packed_rows, m_block),
                     (m_block + 1) * tile.block_m > packed_rows);
}

TileRuns Mask::q_tiles(TileShape tile, int n_block) const {
  const int first = n_block * tile.block_n;
  const Interval keys{first, min_of(seqlen_k_, first + tile.block_n)};
  std::vector<Visit> visits;
  for (const MaskRegion& region : regions_) {
    const Interval columns = common_part(keys, region.keys);
    if (columns.end <= columns.begin) continue;
    const TileRange tiles = detail::q_tiles_of_keys<false>(region, tile, columns.begin, columns.end - 1,
                                                           columns == keys ? keys.end : 0);
    if (tiles.empty()) continue;
    if (regions_.size() == 1) return tiles;
    visits.push_back({&region, tiles});
  }
  return join_visits(visits, [&](int m_block) {
    const Interval queries{m_block * tile.block_m, min_of(seqlen_q_, (m_block + 1) * tile.block_m)};
    return entries_in(visits, queries, keys) == std::int64_t{tile.block_m} * tile.block_n;
  });
}

}  // namespace tilescope
