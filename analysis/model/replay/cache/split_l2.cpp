// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/split_l2.hpp"

#include <algorithm>
#include <bit>

namespace tilescope {

SplitL2::SplitL2(const LineSample& sample, std::optional<std::int64_t> dirty_ways)
    : sample_(&sample),
      ways_(sample.ways()),
      dirty_ways_(static_cast<std::size_t>(dirty_ways.value_or(static_cast<std::int64_t>(ways_)))),
      young_ways_(static_cast<std::size_t>(young_ways(static_cast<std::int64_t>(ways_), dirty_ways))),
      ring_(std::max(kCompared, std::bit_ceil(ways_))) {
  for (auto& entries : entries_) entries.assign(std::size_t{LineSample::kSets} * ring_, kEmpty);
}

std::int64_t SplitL2::access(AccessKind kind, LineSample::Range lines, int partition, bool are_new) {
  const auto take = [this, are_new](Set set, LineSample::Number number) {
    if (!are_new) return touch(set, number);
    fill(set, number);
    return false;
  };
  const auto near = static_cast<std::size_t>(partition);
  std::int64_t missed = 0;
  for (LineSample::Number number = lines.begin; number < lines.end; ++number) {
    const LineSample::Line line = (*sample_)[number];
    const bool far = line.home != partition;
    const Set home = set_of(line.home, line);
    switch (kind == AccessKind::store_then_reduce ? (are_new ? AccessKind::store : AccessKind::reduce)
                                                  : kind) {
      case AccessKind::load:
        if (take(set_of(near, line), number)) continue;
        if (!far || !take(home, number)) ++missed;
        continue;
      case AccessKind::store:  // of a whole line: nothing is fetched
        take(home, number);
        if (far) take(set_of(near, line), number);
        break;
      default:
        if (!take(home, number)) ++missed;
        break;
    }
    make_newest_dirty(home);
  }
  return missed;
}

bool SplitL2::touch(Set set, LineSample::Number number) {
  const std::size_t place = find(set, entry_of(number));
  if (place == ring_) {
    fill(set, number);
    return false;
  }
  const Entry found = set.places[place];
  for (std::size_t to = place; to != set.state.newest;) {  // those that were newer move on by one
    const std::size_t newer = after(to, ring_ - 1);
    set.places[to] = set.places[newer];
    to = newer;
  }
  set.newest() = found;
  clean_aged(set);
  return true;
}

std::size_t SplitL2::find(Set set, Entry clean) const {
  const auto is_it = [clean](Entry entry) { return (entry & ~kDirty) == clean; };
  constexpr std::size_t kRecent = 5;  // CTAs in step find what others have just touched
  for (std::size_t age = 0; age < kRecent; ++age) {
    const std::size_t place = after(set.state.newest, age);
    if (is_it(set.places[place])) return place;
  }
  for (std::size_t begin = 0; begin < ring_; begin += kCompared) {
    std::uint32_t equal = 0;  // a bit a place
    for (std::size_t i = 0; i < kCompared; ++i) {
      equal |= is_it(set.places[begin + i]) ? std::uint32_t{1} << i : 0;
    }
    if (equal != 0) return begin + static_cast<std::size_t>(std::countr_zero(equal));
  }
  return ring_;
}

void SplitL2::fill(Set set, LineSample::Number number) {
  ++filled_;
  make_room(set);
  set.state.newest = static_cast<std::uint16_t>(after(set.state.newest, ring_ - 1));
  set.newest() = entry_of(number);
  clean_aged(set);
  set.state.evict_first += (*sample_)[number].evict_first;
}

void SplitL2::make_room(Set set) {
  const std::size_t oldest = after(set.state.newest, ways_ - 1);
  if (set.places[oldest] == kEmpty) return;
  std::size_t place = oldest;
  if (set.state.evict_first > 0) {
    while (!(*sample_)[set.places[place] >> 1].evict_first) place = after(place, ring_ - 1);
    --set.state.evict_first;
  }
  if (set.places[place] & kDirty) write_back(set, set.places[place]);
  for (; place != oldest; place = after(place, 1)) set.places[place] = set.places[after(place, 1)];
  set.places[oldest] = kEmpty;
}

void SplitL2::make_newest_dirty(Set set) {
  if (set.newest() & kDirty) return;
  set.newest() |= kDirty;
  if (++set.state.dirty <= dirty_ways_) return;
  std::size_t oldest = after(set.state.newest, ways_ - 1);
  while (!(set.places[oldest] & kDirty)) oldest = after(oldest, ring_ - 1);
  write_back(set, set.places[oldest]);
}

void SplitL2::clean_aged(Set set) {
  if (young_ways_ >= ways_) return;
  Entry& aged = set.places[after(set.state.newest, young_ways_)];
  if (aged & kDirty) write_back(set, aged);
}

void SplitL2::write_back(Set set, Entry& entry) {
  entry &= ~kDirty;
  --set.state.dirty;
  ++written_back_;
}

std::int64_t SplitL2::num_written() const {
  std::int64_t written = written_back_;
  for (const auto& states : states_) {
    for (const SetState& state : states) written += state.dirty;
  }
  return written;
}

}  // namespace tilescope
