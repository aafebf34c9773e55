// SPDX-License-Identifier: Apache-2.0
// LRU stack distances in bytes: what tells a hit from a miss for every cache size at once.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace tilescope {

/// The tiles touched so far, most recent on top (Mattson, Gecsei, Slutz, Traiger 1970, with tiles of unequal
/// size). An LRU cache of C bytes holds the longest run from the top whose sizes sum to at most C, so a touch
/// hits exactly when its distance is at most C.
///
/// Each touch takes the next slot of a timeline; sums over groups of slots, in levels, give the bytes above a
/// slot. Slots left behind are squeezed out when the timeline is full.
class ReuseStack {
 public:
  /// Tiles are numbered 0 ... num_tiles - 1.
  explicit ReuseStack(std::uint32_t num_tiles);

  /// Moves `tile` to the top.
  /// @param bytes its size, > 0, the same at every touch
  /// @return the bytes of all tiles from the top down to `tile`, its own included, before the move; or kNever
  /// when
  ///   it is touched for the first time
  std::int64_t touch(std::uint32_t tile, std::int64_t bytes);

  static constexpr std::int64_t kNever = -1;
  /// Memory of a stack of so many tiles, at most. [bytes]
  static std::int64_t memory_bytes(std::int64_t num_tiles);

 private:
  static constexpr int kShift = 6;  // a group of one level is 64 entries of the level below
  static constexpr std::uint32_t kGroup = 1u << kShift;
  static constexpr std::uint32_t kNoSlot = std::numeric_limits<std::uint32_t>::max();

  std::int64_t bytes_above(std::uint32_t slot) const;
  void add(std::uint32_t slot, std::int64_t bytes);
  std::int64_t rotate_to_top(std::uint32_t slot);
  void compact();
  void resize(std::uint32_t slots);

  std::vector<std::uint32_t> slot_of_tile_;
  std::vector<std::uint32_t> tile_of_slot_;
  /// levels_[0][slot] is the size of the tile there, 0 where none is; levels_[k + 1] sums groups of
  /// levels_[k].
  std::vector<std::vector<std::int64_t>> levels_;
  std::uint32_t next_slot_ = 0;
  std::uint32_t live_ = 0;  // tiles on the stack
};

}  // namespace tilescope
