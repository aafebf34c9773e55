// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/lru_of_every_size.hpp"

#include <algorithm>

namespace tilescope {

ReusePoint& DistanceTable::at(std::int64_t distance) {
  ReusePoint* entry = &entries_[place(distance)];
  if (entry->distance_bytes == distance) return *entry;
  if (2 * ++used_ > entries_.size()) {
    grow();
    entry = &entries_[place(distance)];
  }
  entry->distance_bytes = distance;
  return *entry;
}

std::vector<ReusePoint> DistanceTable::sorted() const {
  std::vector<ReusePoint> points;
  for (const ReusePoint& entry : entries_) {
    if (entry.distance_bytes != 0) points.push_back(entry);
  }
  std::sort(points.begin(), points.end(),
            [](const ReusePoint& a, const ReusePoint& b) { return a.distance_bytes < b.distance_bytes; });
  return points;
}

std::size_t DistanceTable::place(std::int64_t distance) const {
  constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // Fibonacci hashing: distances share their low bits
  const std::size_t mask = entries_.size() - 1;
  std::size_t i = static_cast<std::uint64_t>(distance) * kGolden >> 32 & mask;
  while (entries_[i].distance_bytes != 0 && entries_[i].distance_bytes != distance) i = (i + 1) & mask;
  return i;
}

void DistanceTable::grow() {
  std::vector<ReusePoint> old(2 * entries_.size());
  old.swap(entries_);
  for (const ReusePoint& entry : old) {
    if (entry.distance_bytes != 0) entries_[place(entry.distance_bytes)] = entry;
  }
}

/// What is touched a second time in the same order leaves the stack as it was: from then on, each CTA finds
/// the distances that the second found.
void LruOfEverySize::access(const RunTiles& run) {
  const bool same = run.ctas() > 1 && run.same();
  const int ctas = same ? 2 : run.ctas();
  for (int cta = 0; cta < ctas; ++cta) {
    const std::int64_t times = same && cta == 1 ? run.ctas() - 1 : 1;
    for (const OperandTiles& operand : run.operands()) {
      access(operand.kind, same ? operand.first : operand.of(cta, ctas), times);
    }
  }
}

void LruOfEverySize::access(AccessKind kind, NumberedTile tile, std::int64_t times) {
  if (tile.bytes == 0) return;  // of padding alone; the stack takes a size of 0 for a slot left behind
  const std::int64_t distance = stack_.touch(tile.number, tile.bytes);
  const bool first = distance == ReuseStack::kNever;
  const bool begins = first && kind == AccessKind::store_then_reduce;
  begun_tiles_ += begins;
  begun_bytes_ += begins ? tile.bytes : 0;
  if (kind != AccessKind::store && !begins) {
    if (first) {
      cold_read_bytes_ += times * tile.bytes;
    } else {
      distances_.at(distance).read_bytes += times * tile.bytes;
    }
  }
  if (tile.number < largest_distance_.size()) track_dirty(kind, tile, distance, times);
}

/// A tile stays dirty in the caches that have held it ever since it was written: those as large as its
/// largest distance since. The others have written it back and hold it clean, or not at all.
void LruOfEverySize::track_dirty(AccessKind kind, NumberedTile tile, std::int64_t distance,
                                 std::int64_t times) {
  std::int64_t& largest = largest_distance_[tile.number];
  if (largest != kClean) largest = std::max(largest, distance);
  if (kind == AccessKind::load) return;
  if (largest == kClean) {
    flush_write_bytes_ += times * tile.bytes;  // its last write goes out at the latest with the final flush
  } else {
    distances_.at(largest).write_back_bytes += times * tile.bytes;
  }
  largest = 0;
}

}  // namespace tilescope
