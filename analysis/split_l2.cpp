// SPDX-License-Identifier: Apache-2.0
#include "analysis/split_l2.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "cpu_ref/philox.hpp"

namespace tilescope {
namespace {

constexpr std::uint32_t kFillStream = 0, kHomeStream = 1;

/// The same on every machine.
Philox4 random_of(std::int64_t index, std::uint32_t stream) {
  const auto i = static_cast<std::uint64_t>(index);
  return philox4x32(0, {{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), stream, 0}});
}

}  // namespace

SplitL2::SplitL2(const SplitL2Shape& shape, std::size_t sample)
    : num_ways_(static_cast<std::size_t>(shape.ways)),
      sets_(shape.part_bytes / (kLineBytes * shape.ways * 2 * kLinesOfRun) * 2 * kLinesOfRun),
      pairs_of_fill_(sets_ / kLinesOfRun),
      first_set_(static_cast<std::int64_t>(sample) * kSampledSets) {
  if (first_set_ + kSampledSets > sets_) {
    throw BadInput("l2_bytes", std::to_string(kL2Parts * shape.part_bytes),
                   "must be enough for more sets, or l2_ways smaller");
  }
  for (auto& ways : ways_) ways.assign(std::size_t{kSampledSets} * num_ways_, kNoLine);
}

void SplitL2::place(std::int64_t address, std::int64_t bytes) {
  const std::int64_t end = (address + bytes + kLineBytes - 1) / kLineBytes;
  for (std::int64_t line = address / kLineBytes; line < end;) {
    const std::int64_t run = line / kLinesOfRun;
    const std::int64_t first = line % kLinesOfRun;
    const std::int64_t last = std::min(kLinesOfRun, first + end - line);
    line += last - first;
    const std::int64_t pair = run / kL2Parts;  // of runs, one with each home
    const Fill& fill = fill_of(pair / pairs_of_fill_);
    const std::int64_t at = pair % pairs_of_fill_;
    const int home = static_cast<int>((run + fill.first_home[static_cast<std::size_t>(at)]) % kL2Parts);
    const std::int64_t place = at ^ home;
    for (std::uint32_t left = fill.sampled[static_cast<std::size_t>(place)] >> first << first; left != 0;
         left &= left - 1) {
      const int bit = std::countr_zero(left);
      if (bit >= last) break;
      const std::int64_t set = ((place * kLinesOfRun + bit) * fill.step + fill.start) % sets_;
      lines_.push_back({static_cast<std::uint16_t>(set - first_set_), static_cast<std::uint8_t>(home), false});
    }
  }
}

std::int64_t SplitL2::access(AccessKind kind, Lines lines, int part) {
  std::int64_t missed = 0;
  for (LineNumber number = lines.begin; number < lines.end; ++number) {
    const int home = lines_[number].home;
    switch (kind) {
      case AccessKind::load:
        if (!touch(part, number) && (home == part || !touch(home, number))) ++missed;
        continue;
      case AccessKind::store:  // of a whole line: nothing is fetched
        touch(part, number);
        if (home != part) touch(home, number);
        break;
      case AccessKind::reduce:
        if (!touch(home, number)) ++missed;
        break;
    }
    lines_[number].dirty = true;
  }
  return missed;
}

std::int64_t SplitL2::num_written() const {
  return written_back_ +
         std::count_if(lines_.begin(), lines_.end(), [](const Line& line) { return line.dirty; });
}

const SplitL2::Fill& SplitL2::fill_of(std::int64_t number) {
  const auto index = static_cast<std::size_t>(number);
  if (index >= fills_.size()) fills_.resize(index + 1);
  Fill& fill = fills_[index];
  if (!fill.sampled.empty()) return fill;
  const Philox4 random = random_of(number, kFillStream);
  fill.start = random.x[0] % sets_;
  fill.step = random.x[1] % sets_;
  while (std::gcd(fill.step, sets_) != 1) fill.step = (fill.step + 1) % sets_;
  std::int64_t set = fill.start;
  for (std::int64_t pair = 0; pair < pairs_of_fill_; ++pair) {
    fill.first_home.push_back(random_of(number * pairs_of_fill_ + pair, kHomeStream).x[0] % kL2Parts);
    std::uint32_t sampled = 0;
    for (std::int64_t bit = 0; bit < kLinesOfRun; ++bit) {
      if (set >= first_set_ && set < first_set_ + kSampledSets) sampled |= std::uint32_t{1} << bit;
      set += fill.step;
      if (set >= sets_) set -= sets_;
    }
    fill.sampled.push_back(sampled);
  }
  return fill;
}

bool SplitL2::touch(int part, LineNumber number) {
  LineNumber* set = &ways_[static_cast<std::size_t>(part)][lines_[number].set * num_ways_];
  LineNumber* found = std::find(set, set + num_ways_, number);
  const bool held = found != set + num_ways_;
  if (!held) {
    --found;
    if (*found != kNoLine && lines_[*found].dirty && lines_[*found].home == part) {
      lines_[*found].dirty = false;
      ++written_back_;
    }
  }
  std::move_backward(set, found, found + 1);
  *set = number;
  return held;
}

}  // namespace tilescope
