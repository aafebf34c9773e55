// SPDX-License-Identifier: Apache-2.0
// Which CTA makes the next step of a pass, and on which SMs it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "analysis/replay/ctas/cta_progress.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"

namespace tilescope {

/// Where an SM stands: the partition of the L2 beside it, and its clock over the mean of all.
struct SmPlace {
  int partition = 0;
  double clock = 1;
  bool operator==(const SmPlace&) const = default;
};

/// The CTAs that run at once, and how evenly.
struct CtaSchedule {
  std::int64_t co_resident_ctas = 1;  // on all SMs together
  std::int64_t ctas_per_sm = 1;
  ProgressRates progress = {};
  /// In the order in which they are given CTAs; empty: all SMs are alike, and keep step.
  std::vector<SmGroup> sm_groups = {};
  std::size_t launch = 0;
};

/// Runs the co-resident CTAs, each at the rate of its SM from one access group to the next, each replaced, on
/// its SM, by the next in the grid's order when it retires. A slot is a CTA's place on an SM: slot s belongs
/// to SM s modulo their number.
class CoResidentCtas {
 public:
  /// The program must outlive this.
  /// @param on_retired called after each CTA; may be empty
  CoResidentCtas(const TileProgram& program, const CtaSchedule& schedule, std::function<void()> on_retired);

  /// The accesses of the CTA whose turn it is. @return false when all have retired
  bool next(AccessGroup& group);
  /// Of the CTA that next() went to.
  const SmPlace& place() const { return places_[slot_]; }

 private:
  struct Cta {
    CtaWalk walk;
    std::int64_t index;                                        // also its age: CTAs are issued in order
    std::int64_t ticks, ticks_when_younger, ticks_when_alone;  // of a step
    std::uint32_t steps = 0;                                   // made
  };
  /// When a slot's CTA makes its next step; at the same time, slot after slot.
  struct Turn {
    std::int64_t time;
    std::size_t slot;
    auto operator<=>(const Turn&) const = default;
  };

  Cta issue(std::size_t slot);
  /// Until the CTA of that slot makes its next step.
  std::int64_t ticks_of_step(std::size_t slot);

  const TileProgram& program_;
  CtaSchedule schedule_;
  std::function<void()> on_retired_;
  std::size_t num_sms_;
  std::int64_t next_cta_ = 0;
  std::vector<SmPlace> places_;  // by slot, as the CTAs
  std::vector<Cta> running_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
  std::size_t slot_ = 0;
};

/// Where the SM of each of `slots` slots stands; in one place without groups. CTAs are given to SMs in waves
/// of one an SM: the first group is filled first, the others evenly, one group after the other; which of
/// these comes first changes from launch to launch. Source: %smid of CTAs in grids of 4 to 1024, one to four
/// an SM, on an H200. Each group has a clock of its own, in each launch another: which GPCs lag changes from
/// device to device and with what it did before. Source: clocks of SMs before and after passes, on five
/// H200s.
/// @param launch  0, 1, ...: the group after the first that begins, modulo their number
/// @param clock_cv  standard deviation of the groups' clocks, which are normally distributed
std::vector<SmPlace> places_of_slots(const std::vector<SmGroup>& groups, std::size_t slots,
                                     std::size_t launch, double clock_cv);

}  // namespace tilescope
