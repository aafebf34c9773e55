// SPDX-License-Identifier: Apache-2.0
// Which sets of an L2 in two partitions the lines of memory fall into: a sample of the sets, and their lines.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "analysis/model/machine/machine.hpp"

namespace tilescope {

/// A sample of the sets, and the lines in them, by number. Lines that follow each other in memory fill the
/// sets evenly, others at random, so that some sets overflow while the L2 has room. Source: DRAM reads and
/// look-ups (lts__t_sectors_srcunit_{tex,ltcfabric}_lookup_{hit,miss}) of kernels that go over a footprint
/// again and again, on an H200.
class LineSample {
 public:
  using Number = std::uint32_t;
  /// Lines that were placed one after the other.
  struct Range {
    Number begin = 0, end = 0;
    std::int64_t count() const { return end - begin; }
  };
  struct Line {
    std::uint8_t set;
    std::uint8_t home;  // the partition where it meets DRAM
    bool evict_first = false;
    bool operator==(const Line&) const = default;
  };

  /// @throws BadInput where the L2 has fewer sets than the sample
  explicit LineSample(const SplitL2Shape& shape);

  /// Calls visit(address, Line) for the sampled lines that begin among `bytes` bytes from `address` on: each
  /// line belongs to one of the tiles that share it. Ascending.
  template <typename Visitor>
  void for_each_line(std::int64_t address, std::int64_t bytes, Visitor&& visit) {
    const std::int64_t end = (address + bytes + kLineBytes - 1) / kLineBytes;
    for (std::int64_t line = (address + kLineBytes - 1) / kLineBytes; line < end;) {
      const Fill& fill = fill_of(line / lines_of_fill_);
      const std::int64_t begin = fill.number * lines_of_fill_;
      const auto after = [](const FillLine& one, std::int64_t offset) { return one.offset < offset; };
      auto next = std::lower_bound(fill.lines.begin(), fill.lines.end(), line - begin, after);
      for (; next != fill.lines.end() && begin + next->offset < end; ++next) {
        visit((begin + next->offset) * kLineBytes, next->line);
      }
      line = begin + lines_of_fill_;
    }
  }
  /// Numbers those lines.
  void place(std::int64_t address, std::int64_t bytes, bool evict_first = false) {
    for_each_line(address, bytes, [this, evict_first](std::int64_t, Line line) {
      line.evict_first = evict_first;
      append(line);
    });
  }
  /// Gives a line the next number. @throws MachineLacks when there are too many
  void append(Line line) {
    if (lines_.size() == kMostLines) too_many();
    lines_.push_back(line);
  }
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
  static constexpr std::size_t kMostLines = std::size_t{1} << 30;
  struct FillLine {
    std::uint32_t offset;  // in the fill [lines]
    Line line;
  };
  /// As many lines of each home as there are sets, each in another: the i-th of home 0 in set
  /// (start + i * step) mod sets, those of home 1 in the same but for neighbouring runs, which change places.
  /// So pieces of 8 KiB meet in the sets as at random, and those of 16 KiB and more a little more often, as
  /// they do on an H200. Only the lines of the sample are kept.
  struct Fill {
    std::int64_t number = -1;
    std::vector<FillLine> lines;  // ascending
  };
  const Fill& fill_of(std::int64_t number) {
    Fill& fill = recent_[static_cast<std::size_t>(number) % recent_.size()];
    if (fill.number != number) make(fill, number);
    return fill;
  }
  void make(Fill& fill, std::int64_t number);
  [[noreturn]] static void too_many();

  std::size_t ways_;
  std::int64_t sets_, lines_of_fill_;
  std::vector<Fill> recent_;  // by number, modulo how many are kept
  // While a fill is made: the lines by their offsets, and which are of the sample, a bit a line, run after
  // run.
  std::vector<Line> at_offset_;
  std::vector<std::uint32_t> sampled_;
  std::vector<Line> lines_;
};

}  // namespace tilescope
