// SPDX-License-Identifier: Apache-2.0
// What the time of a program is counted with: when the SMs of a GPU are free, and which operation can start
// next.
#pragma once

#include <queue>
#include <vector>

#include "distributed/timeline/device_work.hpp"

namespace tilescope {

/// CTAs go to the SM that is free first.
class SmClock {
 public:
  explicit SmClock(std::int64_t ctas_at_once) : free_(static_cast<std::size_t>(ctas_at_once)) {}

  std::int64_t size() const { return static_cast<std::int64_t>(free_.size()); }
  /// When the last CTA so far ends.
  double level() const { return latest_; }
  /// When an SM has been without a CTA while others still had one. [seconds, of all SMs together]
  double uneven_seconds() const;
  /// Nothing begins before that time any more. @return what SMs wait for it while others compute, as above
  double advance(double time);
  /// @param tile_seconds  of a tile on one SM @return when the last of these CTAs ends
  double issue(const std::vector<EvenCtas>& runs, double tile_seconds);
  /// All SMs do something else for so long, before what CTAs they have been given and not begun.
  void insert(double seconds);

 private:
  double take_turn(double seconds);

  std::vector<double> free_;  // a heap, the earliest first
  double latest_ = 0;
};

/// Operations in the order in which they can start: each after those that it waits for and the one before it
/// on its stream, which is a compute stream of its rank or, of copies, a pair of ranks.
class ReadyOperations {
 public:
  explicit ReadyOperations(const DistributedProgram& program);
  bool any() const { return !ready_.empty(); }
  /// The one that can start first; of several the first of the program.
  int take();
  void note_end(int operation, double end);

 private:
  struct Ready {
    double time;
    int operation;
    bool operator>(const Ready& other) const {
      return time != other.time ? time > other.time : operation > other.operation;
    }
  };
  template <typename Visitor>
  static void for_each_wait(const DistributedProgram& program, Visitor&& visit);

  std::vector<int> missing_;        // by operation: those before it that have not ended
  std::vector<double> time_;        // when the last of the others did
  std::vector<std::size_t> first_;  // by operation: of those that wait for it, in `waiting_`
  std::vector<int> waiting_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace tilescope
