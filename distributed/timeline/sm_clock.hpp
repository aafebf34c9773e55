// SPDX-License-Identifier: Apache-2.0
// When the SMs of a GPU are free: CTAs go to the one that is free first.
#pragma once

#include <vector>

#include "distributed/timeline/device_work.hpp"

namespace tilescope {

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

}  // namespace tilescope
