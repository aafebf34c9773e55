// SPDX-License-Identifier: Apache-2.0
// An L2 in two partitions, each beside one half of the SMs, as data centre chips since the A100 have it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/model/replay/cache/line_sample.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// What the two partitions keep of the sampled lines. SMs ask the partition beside them: a load that misses
/// there goes on to the line's home, and both keep the line; a store leaves it in both as well; a reduction
/// is done at the home alone. A full set gives up the oldest of the lines that are to go first, or else the
/// oldest, and a partition forgets without telling the other. The hint to keep a line to the last does
/// nothing, as measured where no part of the L2 is set aside for such lines. A set with more dirty lines than
/// it may have writes the oldest of them back and keeps it, and so does a full set with a dirty line that is
/// soon to leave (eager writeback: Lee, Tyson, Farrens, MICRO 33, 2000). Empty at first.
class SplitL2 {
 public:
  /// How many of a set's newest lines may be dirty, if dirty lines are limited at all: all but two of its
  /// ways. The two are fitted to the DRAM writes of 26 passes of spent draws and the hold-out: the median
  /// error is 3 %, and was 7 % without; with one it is 3 %, with three 6 %. Kernels that reduce alone, by
  /// which `dirty_ways` is measured, do not depend on it.
  static std::int64_t young_ways(std::int64_t ways, std::optional<std::int64_t> dirty_ways) {
    constexpr std::int64_t kSoonToLeave = 2;
    return dirty_ways ? std::max(ways - kSoonToLeave, *dirty_ways) : ways;
  }

  /// The sample must outlive this; it may grow.
  /// @param dirty_ways  lines of a set that may be dirty at once; none: all, however old
  explicit SplitL2(const LineSample& sample, std::optional<std::int64_t> dirty_ways = std::nullopt);

  /// What an SM beside `partition` does to lines.
  /// @param are_new  none of them was accessed before: they are not looked for, and a store_then_reduce
  /// stores
  /// @return how many of them come from DRAM
  std::int64_t access(AccessKind kind, LineSample::Range lines, int partition, bool are_new = false);
  /// Lines written to DRAM so far, and those that a flush would write.
  std::int64_t num_written() const;
  /// Times that a set took in a line or wrote one back, so far: what finds all as it was left changes none.
  std::int64_t changes() const { return filled_ + written_back_; }

 private:
  /// A line in a set: its number, and whether it is dirty, which it is at its home alone.
  using Entry = std::uint32_t;
  static constexpr Entry kDirty = 1;
  static constexpr Entry kEmpty = ~kDirty;
  static constexpr Entry entry_of(LineSample::Number line) { return line << 1; }
  static constexpr std::size_t kCompared = 16;  // entries at once

  struct SetState {
    std::uint16_t newest = 0;  // place
    std::uint16_t dirty = 0;   // lines
    std::uint16_t evict_first = 0;
  };
  /// The places of a set, in a ring: the newest line, older ones after it, and then empty places.
  struct Set {
    Entry* places;
    SetState& state;
    Entry& newest() const { return places[state.newest]; }
  };
  Set set_of(std::size_t partition, LineSample::Line line) {
    return {&entries_[partition][line.set * ring_], states_[partition][line.set]};
  }
  std::size_t after(std::size_t place, std::size_t places) const { return (place + places) & (ring_ - 1); }

  /// Where a set holds a line; at the end of its ring, if it does not.
  std::size_t find(Set set, Entry clean) const;
  /// Makes a line the newest of a set. @return whether the set held it
  bool touch(Set set, LineSample::Number line);
  /// Takes in a line that the set does not hold.
  void fill(Set set, LineSample::Number line);
  /// Leaves the oldest place empty.
  void make_room(Set set);
  /// Marks the newest line of its home's set as dirty.
  void make_newest_dirty(Set set);
  /// Writes back a line that has just become one of the oldest.
  void clean_aged(Set set);
  void write_back(Set set, Entry& entry);

  const LineSample* sample_;
  std::size_t ways_, dirty_ways_, young_ways_;             // young: newest lines, which may be dirty
  std::size_t ring_;                                       // places of a set, a power of two
  std::array<std::vector<Entry>, kL2Partitions> entries_;  // set after set
  std::array<std::array<SetState, LineSample::kSets>, kL2Partitions> states_{};
  std::int64_t filled_ = 0, written_back_ = 0;
};

}  // namespace tilescope
