// SPDX-License-Identifier: Apache-2.0
// An L2 in two parts, each beside one half of the SMs, as data centre chips since the A100 have it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "analysis/machine.hpp"
#include "cpu_ref/tile_program.hpp"

namespace tilescope {

/// Each line has its home, where it meets DRAM, in one of the parts. SMs ask the part beside them: a load that
/// misses there goes on to the home, and both keep the line; a store leaves it in both as well; a reduction is
/// done at the home alone. A part is set-associative, LRU, and forgets without telling the other. Lines that
/// follow each other in memory fill the sets evenly, others at random, so that some sets overflow while the
/// part has room. Empty at first.
///
/// A sample of the sets is replayed, line by line.
/// Source: DRAM reads and look-ups (lts__t_sectors_srcunit_{tex,ltcfabric}_lookup_{hit,miss}) of kernels that
/// go over a footprint again and again, on an H200.
class SplitL2 {
 public:
  using LineNumber = std::uint32_t;
  /// Lines that were placed together.
  struct Lines {
    LineNumber begin = 0, end = 0;
    std::int64_t count() const { return end - begin; }
  };

  /// @param sample 0, 1, ...: which kSampledSets sets of each part @throws BadInput where there are too few
  SplitL2(const SplitL2Shape& shape, std::size_t sample);

  /// The number that the next line to be placed gets.
  LineNumber num_lines() const { return static_cast<LineNumber>(lines_.size()); }
  /// Gives numbers to the sampled lines among `bytes` bytes from `address` on.
  void place(std::int64_t address, std::int64_t bytes);
  /// What an SM beside `part` does to lines. @return how many of them come from DRAM
  std::int64_t access(AccessKind kind, Lines lines, int part);
  /// Lines written to DRAM so far, and those that a flush would write.
  std::int64_t num_written() const;
  /// Bytes that one sampled line stands for.
  double bytes_per_line() const {
    return static_cast<double>(kLineBytes * sets_) / static_cast<double>(kSampledSets);
  }

  static constexpr std::int64_t kLineBytes = 128;
  static constexpr std::int64_t kHomeBytes = 4096;  // that follow each other and have one home
  static constexpr std::int64_t kSampledSets = 64;

 private:
  static constexpr std::int64_t kLinesOfRun = kHomeBytes / kLineBytes;
  static constexpr LineNumber kNoLine = std::numeric_limits<LineNumber>::max();
  struct Line {
    std::uint16_t set;
    std::uint8_t home;
    bool dirty;
  };
  /// As many lines of each home as there are sets, each in another: the i-th of home 0 in set
  /// (start + i * step) mod sets, those of home 1 in the same but for neighbouring runs, which change places.
  /// So pieces of 8 KiB meet in the sets as at random, and those of 16 KiB and more a little more often, as
  /// they do on an H200.
  struct Fill {
    std::int64_t start = 0, step = 0;
    std::vector<std::uint8_t> first_home;  // of the first run of each pair
    std::vector<std::uint32_t> sampled;    // a bit a line, run after run
  };

  const Fill& fill_of(std::int64_t number);
  /// Makes a line the newest of its set in a part. @return whether the part held it
  bool touch(int part, LineNumber line);

  std::size_t num_ways_;
  std::int64_t sets_, pairs_of_fill_, first_set_;
  std::vector<Fill> fills_;
  std::vector<Line> lines_;
  std::array<std::vector<LineNumber>, kL2Parts> ways_;  // set after set, newest first
  std::int64_t written_back_ = 0;
};

}  // namespace tilescope
