// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/reuse_stack.hpp"

#include <numeric>

namespace tilescope {
namespace {

constexpr std::uint32_t kFewestSlots = 1u << 12;
/// CTAs in step touch the same few tiles in turn: those are moved inside the top group, at no cost in slots.
constexpr std::uint32_t kNear = 8;

}  // namespace

ReuseStack::ReuseStack(std::uint32_t num_tiles) : slot_of_tile_(num_tiles, kNoSlot) { resize(kFewestSlots); }

std::int64_t ReuseStack::memory_bytes(std::int64_t num_tiles) {
  constexpr std::int64_t kSlotsPerTile =
      4;  // compact() leaves at least half of the slots free, and may double them
  return num_tiles * (4 + kSlotsPerTile * (4 + 8));
}

void ReuseStack::resize(std::uint32_t slots) {
  tile_of_slot_.assign(slots, 0);
  levels_.clear();
  for (std::size_t entries = slots;; entries = (entries + kGroup - 1) / kGroup) {
    // Whole groups, so that a sum can run to the end of its group without a bound.
    levels_.emplace_back((entries + kGroup - 1) / kGroup * kGroup, 0);
    if (entries <= kGroup) break;
  }
}

void ReuseStack::add(std::uint32_t slot, std::int64_t bytes) {
  for (std::vector<std::int64_t>& level : levels_) {
    level[slot] += bytes;
    slot >>= kShift;
  }
}

std::int64_t ReuseStack::bytes_above(std::uint32_t slot) const {
  std::int64_t bytes = 0;
  std::uint32_t top = next_slot_ - 1;
  for (const std::vector<std::int64_t>& level : levels_) {
    const std::uint32_t end = (slot | (kGroup - 1)) + 1;
    bytes = std::accumulate(level.begin() + slot + 1, level.begin() + end, bytes);
    slot >>= kShift;
    top >>= kShift;
    if (slot == top) break;  // nothing above the rest of this group
  }
  return bytes;
}

std::int64_t ReuseStack::rotate_to_top(std::uint32_t slot) {
  std::vector<std::int64_t>& sizes = levels_[0];
  const std::int64_t size = sizes[slot];
  const std::uint32_t tile = tile_of_slot_[slot];
  std::int64_t distance = size;
  for (; slot + 1 < next_slot_; ++slot) {
    sizes[slot] = sizes[slot + 1];
    if (sizes[slot] == 0) continue;
    distance += sizes[slot];
    tile_of_slot_[slot] = tile_of_slot_[slot + 1];
    slot_of_tile_[tile_of_slot_[slot]] = slot;
  }
  sizes[slot] = size;
  tile_of_slot_[slot] = tile;
  slot_of_tile_[tile] = slot;
  return distance;
}

std::int64_t ReuseStack::touch(std::uint32_t tile, std::int64_t bytes) {
  std::uint32_t slot = slot_of_tile_[tile];
  if (slot != kNoSlot && next_slot_ - 1 - slot < kNear && (slot >> kShift) == ((next_slot_ - 1) >> kShift)) {
    return rotate_to_top(slot);
  }
  if (next_slot_ == tile_of_slot_.size()) {
    compact();
    slot = slot_of_tile_[tile];
  }
  std::int64_t distance = kNever;
  if (slot == kNoSlot) {
    ++live_;
  } else {
    distance = bytes + bytes_above(slot);
    add(slot, -bytes);
  }
  slot_of_tile_[tile] = next_slot_;
  tile_of_slot_[next_slot_] = tile;
  add(next_slot_++, bytes);
  return distance;
}

void ReuseStack::compact() {
  const std::vector<std::uint32_t> old_tiles = tile_of_slot_;
  const std::vector<std::int64_t> old_sizes = levels_[0];
  std::uint32_t slots = static_cast<std::uint32_t>(old_tiles.size());
  if (live_ > slots / 2) slots *= 2;
  resize(slots);
  next_slot_ = 0;
  for (std::size_t old = 0; old < old_tiles.size(); ++old) {
    if (old_sizes[old] == 0) continue;
    const std::uint32_t tile = old_tiles[old];
    slot_of_tile_[tile] = next_slot_;
    tile_of_slot_[next_slot_] = tile;
    levels_[0][next_slot_++] = old_sizes[old];
  }
  for (std::size_t k = 0; k + 1 < levels_.size(); ++k) {
    for (std::size_t i = 0; i < levels_[k].size(); ++i) levels_[k + 1][i >> kShift] += levels_[k][i];
  }
}

}  // namespace tilescope
