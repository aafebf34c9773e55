// SPDX-License-Identifier: Apache-2.0
#include "analysis/cta_schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu_ref/philox.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kRetired = std::numeric_limits<std::int64_t>::max();

/// Time of a step, in ticks: normally distributed over the CTAs, as the sum of twelve uniform numbers, whose
/// integers are the same on every machine.
std::int64_t step_ticks(std::int64_t cta, double pace_spread) {
  constexpr std::int64_t kMean = 1 << 20;
  constexpr double kUniformRange = 4294967296.0;
  double sum = 0;
  for (std::uint32_t draw = 0; draw < 3; ++draw) {
    const auto index = static_cast<std::uint64_t>(cta);
    const Philox4 random = philox4x32(
        0, {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), draw, 0}});
    for (const std::uint32_t bits : random.x) sum += (bits + 0.5) / kUniformRange;
  }
  const double factor = std::max(0.1, 1 + pace_spread * (sum - 6));
  return static_cast<std::int64_t>(factor * kMean);
}

/// How many of a wave's `ctas` each group gets.
std::vector<std::size_t> shares(const std::vector<SmGroup>& groups, std::size_t ctas) {
  std::vector<std::size_t> shares(groups.size());
  const auto room = [&](std::size_t group) { return static_cast<std::size_t>(groups[group].sms); };
  shares[0] = std::min(ctas, room(0));
  for (std::size_t left = ctas - shares[0]; left > 0;) {
    for (std::size_t group = 1; group < groups.size() && left > 0; ++group) {
      if (shares[group] == room(group)) continue;
      ++shares[group];
      --left;
    }
  }
  return shares;
}

}  // namespace

CoResidentCtas::CoResidentCtas(const TileProgram& program, const CtaSchedule& schedule,
                               std::function<void()> on_retired)
    : program_(program),
      schedule_(schedule),
      on_retired_(std::move(on_retired)),
      num_sms_(static_cast<std::size_t>(
          std::max<std::int64_t>(1, schedule.co_resident_ctas / schedule.ctas_per_sm))) {
  const std::int64_t slots = std::min(schedule.co_resident_ctas, program.num_ctas());
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots); ++slot) {
    running_.push_back(issue());
    turns_.push({0, slot});
  }
}

bool CoResidentCtas::next(AccessGroup& group) {
  while (!turns_.empty()) {
    const Turn turn = turns_.top();
    turns_.pop();
    Cta& cta = running_[turn.slot];
    bool busy = cta.walk.next(group);
    while (!busy) {
      if (on_retired_) on_retired_();
      if (next_cta_ == program_.num_ctas()) break;
      cta = issue();
      busy = cta.walk.next(group);
    }
    if (busy) {
      turns_.push({turn.time + ticks_of_step(turn.slot), turn.slot});
      slot_ = turn.slot;
      return true;
    }
    cta.index = kRetired;
  }
  return false;
}

CoResidentCtas::Cta CoResidentCtas::issue() {
  const std::int64_t ticks = step_ticks(next_cta_, schedule_.pace_spread);
  const auto at_pace = [ticks](double pace) {
    return static_cast<std::int64_t>(static_cast<double>(ticks) / pace);
  };
  Cta cta{CtaWalk(program_, next_cta_), next_cta_, ticks, at_pace(schedule_.paces.younger),
          at_pace(schedule_.paces.alone)};
  ++next_cta_;
  return cta;
}

std::int64_t CoResidentCtas::ticks_of_step(std::size_t slot) const {
  const Cta& cta = running_[slot];
  bool oldest = true, alone = schedule_.ctas_per_sm > 1;
  for (std::size_t other = slot % num_sms_; other < running_.size(); other += num_sms_) {
    if (other == slot || running_[other].index == kRetired) continue;
    alone = false;
    oldest = oldest && cta.index < running_[other].index;
  }
  if (alone) return cta.ticks_when_alone;
  return oldest ? cta.ticks : cta.ticks_when_younger;
}

std::vector<int> l2_parts_of_slots(const std::vector<SmGroup>& groups, std::size_t slots,
                                   std::size_t launch) {
  std::vector<SmGroup> order = groups;
  if (order.size() > 1) {
    const auto first = order.begin() + 1;
    std::rotate(first, first + static_cast<std::ptrdiff_t>(launch % (order.size() - 1)), order.end());
  }
  const auto sms = static_cast<std::size_t>(
      std::accumulate(order.begin(), order.end(), std::int64_t{0},
                      [](std::int64_t sum, const SmGroup& group) { return sum + group.sms; }));
  std::vector<int> parts;
  while (parts.size() < slots) {
    const std::vector<std::size_t> wave = shares(order, std::min(sms, slots - parts.size()));
    for (std::size_t group = 0; group < order.size(); ++group) {
      parts.insert(parts.end(), wave[group], order[group].part);
    }
  }
  return parts;
}

}  // namespace tilescope
