// SPDX-License-Identifier: Apache-2.0
// Who is next: a queue by time whose pushes and pops take constant time.
#pragma once

#include <algorithm>
#include <bit>
#include <compare>
#include <cstdint>
#include <vector>

namespace tilescope {

/// When somebody makes the next step; at the same time, one after the other by number.
struct Turn {
  std::int64_t time = 0;
  std::size_t who = 0;
  auto operator<=>(const Turn&) const = default;
};

/// Buckets of equal time, used again and again: those that come nearly evenly find about one turn in each. A
/// bucket is sorted when its time has come. Source: Brown, "Calendar queues", CACM 31 (1988).
class TurnQueue {
 public:
  /// @param turns   how many there are at once, about
  /// @param period  from a turn to the next of the same, about
  TurnQueue(std::size_t turns, std::int64_t period)
      : buckets_(std::bit_ceil(kBucketsOfTurn * std::max<std::size_t>(1, turns))),
        shift_(static_cast<int>(
            std::bit_width(static_cast<std::uint64_t>(period) * kPeriods / buckets_.size()))) {}

  bool empty() const { return size_ == 0; }

  /// @param turn  no earlier than the last that was popped
  void push(Turn turn) {
    ++size_;
    const std::int64_t lap = turn.time >> shift_;
    if (lap == now_) {
      due_.insert(std::upper_bound(due_.begin(), due_.end(), turn, std::greater<>()), turn);
    } else {
      buckets_[index(lap)].push_back(turn);
    }
  }

  /// The earliest. Precondition: !empty()
  Turn pop() {
    while (due_.empty()) advance();
    const Turn turn = due_.back();
    due_.pop_back();
    --size_;
    return turn;
  }

 private:
  static constexpr std::size_t kBucketsOfTurn = 4, kPeriods = 2;

  std::size_t index(std::int64_t lap) const { return static_cast<std::size_t>(lap) & (buckets_.size() - 1); }
  /// Takes what is due in the next bucket; what comes round to it later stays.
  void advance() {
    ++now_;
    std::vector<Turn>& bucket = buckets_[index(now_)];
    if (bucket.empty()) return;
    const auto later = std::partition(bucket.begin(), bucket.end(),
                                      [this](const Turn& turn) { return turn.time >> shift_ != now_; });
    due_.assign(later, bucket.end());
    bucket.erase(later, bucket.end());
    std::sort(due_.begin(), due_.end(), std::greater<>());
  }

  std::vector<std::vector<Turn>> buckets_;
  int shift_;
  std::int64_t now_ = -1;  // the bucket's time that due_ is of
  std::vector<Turn> due_;  // the earliest last
  std::size_t size_ = 0;
};

}  // namespace tilescope
