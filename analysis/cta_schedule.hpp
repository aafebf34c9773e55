// SPDX-License-Identifier: Apache-2.0
// Which CTA makes the next step of a pass, and beside which part of the L2 it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "analysis/cta_paces.hpp"
#include "analysis/machine.hpp"
#include "cpu_ref/cta_walk.hpp"

namespace tilescope {

/// The CTAs that run at once, and how evenly.
struct CtaSchedule {
  std::int64_t co_resident_ctas = 1;  // on all SMs together
  std::int64_t ctas_per_sm = 1;
  /// Standard deviation of the time that a CTA takes for a step, which differs from CTA to CTA, over its
  /// mean. 0: all run in step.
  double pace_spread = 0;
  CtaPaces paces = {};  // of those that share an SM
};

/// Runs the co-resident CTAs, each at its own pace from one access group to the next, each replaced, on its
/// SM, by the next in the grid's order when it retires. A slot is a CTA's place on an SM: slot s belongs to
/// SM s modulo their number.
class CoResidentCtas {
 public:
  /// The program must outlive this.
  /// @param on_retired called after each CTA; may be empty
  CoResidentCtas(const TileProgram& program, const CtaSchedule& schedule, std::function<void()> on_retired);

  /// The accesses of the CTA whose turn it is. @return false when all have retired
  bool next(AccessGroup& group);
  /// Of the CTA that next() went to.
  std::size_t slot() const { return slot_; }
  std::size_t num_slots() const { return running_.size(); }

 private:
  struct Cta {
    CtaWalk walk;
    std::int64_t index;                                        // also its age: CTAs are issued in order
    std::int64_t ticks, ticks_when_younger, ticks_when_alone;  // of a step
  };
  /// When a slot's CTA makes its next step; at the same time, slot after slot.
  struct Turn {
    std::int64_t time;
    std::size_t slot;
    auto operator<=>(const Turn&) const = default;
  };

  Cta issue();
  /// Until the CTA of that slot makes its next step.
  std::int64_t ticks_of_step(std::size_t slot) const;

  const TileProgram& program_;
  CtaSchedule schedule_;
  std::function<void()> on_retired_;
  std::size_t num_sms_;
  std::int64_t next_cta_ = 0;
  std::vector<Cta> running_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::size_t slot_ = 0;
};

/// The part of the L2 beside each of `slots` slots. CTAs are given to SMs in waves of one an SM: the first
/// group is filled first, the others evenly, one group after the other; which of these comes first changes
/// from launch to launch. Source: %smid of CTAs in grids of 4 to 1024, one to four an SM, on an H200.
/// @param launch  0, 1, ...: the group after the first that begins, modulo their number
std::vector<int> l2_parts_of_slots(const std::vector<SmGroup>& groups, std::size_t slots, std::size_t launch);

}  // namespace tilescope
