// SPDX-License-Identifier: Apache-2.0
// An L2 in two partitions, each beside one half of the SMs, as data centre chips since the A100 have it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Which sets of an L2 in two partitions the lines of memory fall into: a sample of the sets, and the lines
/// in them, by number. Lines that follow each other in memory fill the sets evenly, others at random, so that
/// some sets overflow while the L2 has room. Source: DRAM reads and look-ups
/// (lts__t_sectors_srcunit_{tex,ltcfabric}_lookup_{hit,miss}) of kernels that go over a footprint again and
/// again, on an H200.
class LineSample {
 public:
  using Number = std::uint32_t;
  /// Lines that were placed one after the other.
  struct Range {
    Number begin = 0, end = 0;
    std::int64_t count() const { return end - begin; }
  };
  struct Line {
    std::uint16_t set;
    std::uint8_t home;  // the partition where it meets DRAM
  };

  /// @throws BadInput where the L2 has fewer sets than the sample
  explicit LineSample(const SplitL2Shape& shape);

  /// Numbers the sampled lines that begin among `bytes` bytes from `address` on: each line belongs to one of
  /// the tiles that share it.
  void place(std::int64_t address, std::int64_t bytes);
  Number size() const { return static_cast<Number>(lines_.size()); }
  Line operator[](Number number) const { return lines_[number]; }
  std::size_t ways() const { return ways_; }
  /// Bytes that a line of the sample stands for.
  double bytes_per_line() const {
    return static_cast<double>(kLineBytes * sets_) / static_cast<double>(kSets);
  }

  static constexpr std::int64_t kLineBytes = SplitL2Shape::kLineBytes;
  static constexpr std::int64_t kHomeBytes = SplitL2Shape::kHomeBytes;
  static constexpr std::int64_t kSets = SplitL2Shape::kLeastSets;  // of the sample, in each partition

 private:
  static constexpr std::int64_t kLinesOfRun = kHomeBytes / kLineBytes;
  /// As many lines of each home as there are sets, each in another: the i-th of home 0 in set
  /// (start + i * step) mod sets, those of home 1 in the same but for neighbouring runs, which change places.
  /// So pieces of 8 KiB meet in the sets as at random, and those of 16 KiB and more a little more often, as
  /// they do on an H200.
  struct Fill {
    std::int64_t start = 0, step = 0;
    std::vector<std::uint8_t> first_home;  // of the first run of each pair
    std::vector<std::uint32_t> sampled;    // a bit a line, run after run
  };
  const Fill& fill_of(std::size_t number);

  std::size_t ways_;
  std::int64_t sets_;
  std::uint32_t pairs_of_fill_;
  std::vector<Fill> fills_;
  std::vector<Line> lines_;
};

/// What the two partitions keep of the sampled lines. SMs ask the partition beside them: a load that misses
/// there goes on to the line's home, and both keep the line; a store leaves it in both as well; a reduction
/// is done at the home alone. Sets are LRU, and a partition forgets without telling the other. A set with
/// more dirty lines than it may have writes the oldest of them back and keeps it. Empty at first.
class SplitL2 {
 public:
  /// The sample must outlive this; it may grow.
  /// @param dirty_ways  lines of a set that may be dirty at once; none: all
  explicit SplitL2(const LineSample& sample, std::optional<std::int64_t> dirty_ways = std::nullopt);

  /// What an SM beside `partition` does to lines. @return how many of them come from DRAM
  std::int64_t access(AccessKind kind, LineSample::Range lines, int partition);
  /// Lines written to DRAM so far, and those that a flush would write.
  std::int64_t num_written() const;

 private:
  static constexpr LineSample::Number kNoLine = std::numeric_limits<LineSample::Number>::max();
  /// Makes a line the newest of its set in a partition. @return whether the partition held it
  bool touch(int partition, LineSample::Number line);
  /// Marks a line that its home holds as dirty.
  void make_dirty(LineSample::Number line);

  const LineSample* sample_;
  std::size_t dirty_ways_;
  std::array<std::vector<LineSample::Number>, kL2Partitions> sets_;  // one after the other, newest line first
  std::vector<std::uint8_t> dirty_;                                  // by line
  std::int64_t written_back_ = 0;
};

}  // namespace tilescope
