// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/lru_of_one_size.hpp"

namespace tilescope {

/// A CTA that finds everything, as the one before it has left it, leaves it so for those that do the same.
void LruOfOneSize::access(const RunTiles& run) {
  for (int cta = 0; cta < run.ctas(); ++cta) {
    const std::int64_t before = misses_;
    for (const OperandTiles& operand : run.operands()) access(operand.kind, operand.of(cta, run.ctas()));
    if (run.same() && cta > 0 && misses_ == before) return;
  }
}

void LruOfOneSize::access(AccessKind kind, NumberedTile numbered) {
  Tile& tile = tiles_[numbered.number];
  if (tile.held) {
    if (newest_ != numbered.number) {
      unlink(tile);
      make_newest(numbered.number);
    }
  } else {
    ++misses_;
    tile.held = true;
    tile.bytes = numbered.bytes;
    room_ -= tile.bytes;
    const bool begins = kind == AccessKind::store_then_reduce && !tile.seen;
    begun_tiles_ += begins;
    begun_bytes_ += begins ? tile.bytes : 0;
    if (kind != AccessKind::store && !begins) read_bytes_ += tile.bytes;
    tile.seen = true;
    make_newest(numbered.number);
  }
  if (kind != AccessKind::load && !tile.dirty) {
    tile.dirty = true;
    dirty_bytes_ += tile.bytes;
  }
  while (room_ < 0) evict_oldest();
}

void LruOfOneSize::make_newest(std::uint32_t number) {
  Tile& tile = tiles_[number];
  tile.newer = kNone;
  tile.older = newest_;
  (newest_ == kNone ? oldest_ : tiles_[newest_].newer) = number;
  newest_ = number;
}

void LruOfOneSize::unlink(const Tile& tile) {
  (tile.newer == kNone ? newest_ : tiles_[tile.newer].older) = tile.older;
  (tile.older == kNone ? oldest_ : tiles_[tile.older].newer) = tile.newer;
}

void LruOfOneSize::evict_oldest() {
  Tile& tile = tiles_[oldest_];
  unlink(tile);
  room_ += tile.bytes;
  if (tile.dirty) {
    dirty_bytes_ -= tile.bytes;
    write_bytes_ += tile.bytes;
  }
  tile.held = tile.dirty = false;
}

}  // namespace tilescope
