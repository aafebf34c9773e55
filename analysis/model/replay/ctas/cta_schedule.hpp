// SPDX-License-Identifier: Apache-2.0
// Which CTA makes the next step of a pass, and on which SMs it runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/replay/ctas/cta_progress.hpp"
#include "analysis/model/replay/ctas/sums_in_order.hpp"
#include "analysis/model/replay/ctas/turn_queue.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"

namespace tilescope {

/// Where an SM stands: the partition of the L2 beside it, and its clock over the mean of all.
struct SmPlace {
  int partition = 0;
  double clock = 1;
  std::size_t sm = 0;  // its number, group after group
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
  /// Clocks of a step of the CTA of a ragged last block, over those of a step of a whole one.
  double ragged_pace = 1;
};

/// What CTAs in step do at once: the first of them `group`, each of the others the same at a block further
/// on.
struct CtaRun {
  AccessGroup group;
  int ctas = 1;
  /// What the `cta`-th of them does, in a pass whose CTAs own blocks of `owned`.
  AccessGroup group_of(int cta, Axis owned) const {
    AccessGroup its = group;
    int& block = owned == Axis::q ? its.m_block : its.n_block;
    if (block >= 0) block += cta;
    return its;
  }
};

/// Runs the co-resident CTAs, each at the rate of its SM from one access group to the next, each replaced, on
/// its SM, by the next in the grid's order when it retires, or going on as the program's HandOut says. Who
/// must wait before it adds to a sum looks again a step later. A slot is a CTA's place on an SM.
///
/// Where all SMs of a group keep step, so do their CTAs: neighbours in slots and in the grid, with as many
/// steps before them, go as one. They make their accesses one right after the other either way.
class CoResidentCtas {
 public:
  /// The program must outlive this.
  /// @param on_retired called after each CTA; may be empty
  CoResidentCtas(const TileProgram& program, const CtaSchedule& schedule, std::function<void()> on_retired);

  /// The accesses of the CTAs whose turn it is. @return false when all have retired
  bool next(CtaRun& run);
  /// Beside which the CTAs run that next() went to.
  int partition() const { return sections_[turn_->who].partition; }

 private:
  using Numbers =
      std::vector<std::int64_t>;  // of CTAs, or of the blocks that stand for them, slot after slot
  /// CTAs in neighbouring slots that own neighbouring blocks, and have as many steps before them.
  struct Team {
    CtaWalk walk;        // of the first
    std::int64_t first;  // its number
    int ctas = 1;
    std::optional<AccessGroup> held = std::nullopt;  // what the CTAs wait to do
  };
  static constexpr std::int64_t kNone = -1;
  /// Neighbouring slots whose CTAs make their steps at the same times: one slot, unless all are in step.
  struct Section {
    int partition;
    std::size_t sm;
    std::int64_t ticks, ticks_when_younger, ticks_when_alone;  // of a step
    std::vector<Team> teams = {};  // slot after slot; none when all CTAs have retired
    // Unless all are in step:
    std::int64_t cta = kNone;  // its number, also its age: CTAs are issued in order
    std::uint32_t steps = 0;   // that this CTA has made
    bool ragged = false;       // its block is
  };
  /// What tells a CTA's age among those of its SM.
  struct Sm {
    std::vector<std::size_t> slots = {};
    int running = 0;
    std::int64_t oldest = 0;
  };

  /// Makes the sections. @return how many slots each has
  std::vector<std::size_t> divide(std::size_t slots);
  /// The next that nobody has, so many or as many as there are left.
  Numbers take(std::int64_t ctas);
  /// What the CTAs of a team go on with.
  Numbers after(const Team& team);
  /// Adds CTAs to neighbouring slots' teams.
  void add(std::vector<Team>& teams, const Numbers& numbers) const;
  bool in_step_with_last(std::int64_t cta) const;
  /// The accesses of the team's next step, if it is to make one now. @return false if it is to wait
  bool may_step(Team& team, AccessGroup& group);
  /// Replaces the CTAs of a section's team, which have retired, and of those after it that have, too.
  void replace(std::size_t section, std::size_t team);
  /// That slot, a section of its own, runs another CTA from now on.
  void note_age(std::size_t slot, std::int64_t cta);
  /// Until the CTAs of that section make their next step.
  std::int64_t ticks_of_step(std::size_t section);

  const TileProgram& program_;
  CtaSchedule schedule_;
  std::function<void()> on_retired_;
  HandOut hand_out_;
  std::size_t num_sms_;
  bool in_step_;  // whatever the CTAs of an SM are, each takes as long for a step as for any other
  std::int64_t next_cta_ = 0;
  std::int64_t slots_ = 0;
  std::optional<SumsInOrder> sums_;  // of a pass whose reductions wait for others
  std::vector<Section> sections_;    // by their slots
  std::vector<Sm> sms_;              // unless all are in step
  std::optional<TurnQueue> turns_;   // of sections
  std::optional<Turn> turn_;         // that is being made
  std::size_t team_ = 0;             // the next of the turn
};

/// Where the SM of each of `slots` slots stands; without groups in one place, and no SM is told from another.
/// CTAs are given to SMs in waves of one an SM: the first group is filled first, the others evenly, one group
/// after the other; which of these comes first changes from launch to launch. So it is SMs of each group that
/// get none of a last wave that is less than a whole one. Source: %smid of CTAs in grids of 4 to 1024, one to
/// four an SM, on an H200. Each group has a clock of its own, in each launch another: which GPCs lag changes
/// from device to device and with what it did before. Source: clocks of SMs before and after passes, on five
/// H200s.
/// @param launch  0, 1, ...: the group after the first that begins, modulo their number
/// @param clock_cv  standard deviation of the groups' clocks, which are normally distributed
std::vector<SmPlace> places_of_slots(const std::vector<SmGroup>& groups, std::size_t slots,
                                     std::size_t launch, double clock_cv);

}  // namespace tilescope
