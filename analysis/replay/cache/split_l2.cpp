// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/cache/split_l2.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

#include "common/errors.hpp"
#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::uint32_t kFillStream = 0, kHomeStream = 1;

/// The same on every machine.
Philox4 random_of(std::uint64_t index, std::uint32_t stream) {
  const auto low = static_cast<std::uint32_t>(index), high = static_cast<std::uint32_t>(index >> 32);
  return philox4x32(0, {{low, high, stream, 0}});
}

}  // namespace

LineSample::LineSample(const SplitL2Shape& shape)
    : ways_(static_cast<std::size_t>(shape.ways)),
      sets_(shape.sets()),
      pairs_of_fill_(static_cast<std::uint32_t>(sets_ / kLinesOfRun)) {
  if (sets_ >= kSets) return;
  throw BadInput("l2_ways", std::to_string(shape.ways),
                 fmt::format("must leave {} sets or more to half an L2", kSets));
}

void LineSample::place(std::int64_t address, std::int64_t bytes) {
  const std::int64_t end = (address + bytes + kLineBytes - 1) / kLineBytes;
  for (std::int64_t line = (address + kLineBytes - 1) / kLineBytes; line < end;) {
    const std::int64_t run = line / kLinesOfRun;
    const std::int64_t first = line % kLinesOfRun;
    const std::int64_t last = std::min(kLinesOfRun, first + end - line);
    line += last - first;
    const auto pair = static_cast<std::uint32_t>(run / kL2Partitions);  // of runs, one with each home
    const Fill& fill = fill_of(pair / pairs_of_fill_);
    const std::uint32_t at = pair % pairs_of_fill_;
    const auto home = static_cast<std::uint8_t>((run + fill.first_home[at]) % kL2Partitions);
    const std::uint32_t place = at ^ home;
    for (std::uint32_t left = fill.sampled[place] >> first << first; left != 0; left &= left - 1) {
      const int bit = std::countr_zero(left);
      if (bit >= last) break;
      const std::int64_t set = ((place * kLinesOfRun + bit) * fill.step + fill.start) % sets_;
      lines_.push_back({static_cast<std::uint16_t>(set), home});
    }
  }
}

const LineSample::Fill& LineSample::fill_of(std::size_t number) {
  if (number >= fills_.size()) fills_.resize(number + 1);
  Fill& fill = fills_[number];
  if (!fill.sampled.empty()) return fill;
  const Philox4 random = random_of(number, kFillStream);
  fill.start = random.x[0] % sets_;
  fill.step = random.x[1] % sets_;
  while (std::gcd(fill.step, sets_) != 1) fill.step = (fill.step + 1) % sets_;
  std::int64_t set = fill.start;
  for (std::uint32_t pair = 0; pair < pairs_of_fill_; ++pair) {
    fill.first_home.push_back(random_of(number * pairs_of_fill_ + pair, kHomeStream).x[0] % kL2Partitions);
    std::uint32_t sampled = 0;
    for (std::int64_t bit = 0; bit < kLinesOfRun; ++bit) {
      if (set < kSets) sampled |= std::uint32_t{1} << bit;
      set += fill.step;
      if (set >= sets_) set -= sets_;
    }
    fill.sampled.push_back(sampled);
  }
  return fill;
}

SplitL2::SplitL2(const LineSample& sample, std::optional<std::int64_t> dirty_ways)
    : sample_(&sample), dirty_ways_(dirty_ways ? static_cast<std::size_t>(*dirty_ways) : sample.ways()) {
  for (auto& sets : sets_) sets.assign(std::size_t{LineSample::kSets} * sample.ways(), kNoLine);
}

std::int64_t SplitL2::access(AccessKind kind, LineSample::Range lines, int partition) {
  if (dirty_.size() < lines.end) dirty_.resize(sample_->size());
  std::int64_t missed = 0;
  for (LineSample::Number line = lines.begin; line < lines.end; ++line) {
    const int home = (*sample_)[line].home;
    switch (kind) {
      case AccessKind::load:
        if (!touch(partition, line) && (home == partition || !touch(home, line))) ++missed;
        continue;
      case AccessKind::store:  // of a whole line: nothing is fetched
        touch(partition, line);
        if (home != partition) touch(home, line);
        break;
      case AccessKind::reduce:
        if (!touch(home, line)) ++missed;
        break;
    }
    make_dirty(line);
  }
  return missed;
}

bool SplitL2::touch(int partition, LineSample::Number line) {
  LineSample::Number* set =
      &sets_[static_cast<std::size_t>(partition)][(*sample_)[line].set * sample_->ways()];
  LineSample::Number* found = std::find(set, set + sample_->ways(), line);
  const bool held = found != set + sample_->ways();
  if (!held) {
    --found;
    if (*found != kNoLine && dirty_[*found] && (*sample_)[*found].home == partition) {
      dirty_[*found] = 0;
      ++written_back_;
    }
  }
  std::move_backward(set, found, found + 1);
  *set = line;
  return held;
}

void SplitL2::make_dirty(LineSample::Number line) {
  if (dirty_[line]) return;
  dirty_[line] = 1;
  const auto [number, home] = (*sample_)[line];
  const LineSample::Number* set = &sets_[home][number * sample_->ways()];
  std::size_t dirty = 0;
  LineSample::Number oldest = line;
  for (std::size_t way = 0; way < sample_->ways() && set[way] != kNoLine; ++way) {
    if (!dirty_[set[way]] || (*sample_)[set[way]].home != home) continue;
    ++dirty;
    oldest = set[way];
  }
  if (dirty <= dirty_ways_) return;
  dirty_[oldest] = 0;
  ++written_back_;
}

std::int64_t SplitL2::num_written() const {
  return written_back_ + std::count(dirty_.begin(), dirty_.end(), 1);
}

}  // namespace tilescope
