// SPDX-License-Identifier: Apache-2.0
// The tiles that a block of the owned axis visits. A band leaves one run of them, other masks several.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

/// Runs of consecutive tiles, ascending; no tile is in two.
class TileRuns {
 public:
  TileRuns() = default;
  TileRuns(const TileRange& run) : runs_{run}, count_(run.count()) {}

  /// Behind the others.
  void add(const TileRange& run) {
    runs_.push_back(run);
    count_ += run.count();
  }
  const std::vector<TileRange>& runs() const { return runs_; }
  int count() const { return count_; }
  bool empty() const { return count_ <= 0; }
  /// The first tile, and the one behind the last.
  int begin_tile() const { return runs_.empty() ? 0 : runs_.front().begin; }
  int end_tile() const { return runs_.empty() ? 0 : runs_.back().end; }
  /// The tile at a position, which counts over the runs.
  int operator[](int position) const {
    for (const TileRange& run : runs_) {
      if (position < run.count()) return run.begin + position;
      position -= run.count();
    }
    return end_tile();
  }
  bool has(int tile) const { return in_some_run(tile, &TileRange::begin, &TileRange::end); }
  bool full(int tile) const { return in_some_run(tile, &TileRange::full_begin, &TileRange::full_end); }
  /// Those in front of a tile.
  int count_before(int tile) const {
    int count = 0;
    for (const TileRange& run : runs_) count += std::clamp(tile - run.begin, 0, std::max(0, run.count()));
    return count;
  }
  /// Those that lie in [begin, end).
  TileRuns between(int begin, int end) const {
    TileRuns part;
    for (const TileRange& run : runs_) {
      const TileRange inside =
          detail::tile_range(max_of(run.begin, begin), min_of(run.end, end), run.full_begin, run.full_end);
      if (runs_.size() == 1 || !inside.empty()) part.add(inside);
    }
    return part;
  }
  /// Those at positions [begin, end).
  TileRuns at_positions(int begin, int end) const {
    TileRuns part;
    int first = 0;  // position of the run
    for (const TileRange& run : runs_) {
      const int to_tile = run.begin - first;
      const TileRange inside = detail::tile_range(
          max_of(run.begin, begin + to_tile), min_of(run.end, end + to_tile), run.full_begin, run.full_end);
      if (runs_.size() == 1 || !inside.empty()) part.add(inside);
      first += run.count();
    }
    return part;
  }
  /// Whether the same tiles are visited, full or not, one after the other.
  bool same_tiles(const TileRuns& other) const {
    if (runs_.size() == 1 && other.runs_.size() == 1) {
      return begin_tile() == other.begin_tile() && end_tile() == other.end_tile();
    }
    return bounds() == other.bounds();
  }

 private:
  bool in_some_run(int tile, int TileRange::*begin, int TileRange::*end) const {
    return std::any_of(runs_.begin(), runs_.end(),
                       [=](const TileRange& run) { return run.*begin <= tile && tile < run.*end; });
  }
  /// Begin and end of what has no gap.
  std::vector<Interval> bounds() const {
    std::vector<Interval> all;
    for (const TileRange& run : runs_) {
      if (!all.empty() && all.back().end == run.begin) {
        all.back().end = run.end;
      } else {
        all.push_back({run.begin, run.end});
      }
    }
    return all;
  }

  std::vector<TileRange> runs_;
  int count_ = 0;
};

}  // namespace tilescope
