// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/ctas/cta_schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu_ref/numeric/philox.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kRetired = std::numeric_limits<std::int64_t>::max();

constexpr double kTicks = 1 << 20;  // of a step at the mean clock

constexpr std::uint32_t kClockStream = 0, kStepStream = 1, kTpcStream = 2;

/// 1 on average, nearly normally distributed: the sum of four uniform numbers, whose integers are the same on
/// every machine.
double about_one(double cv, std::uint64_t number, std::uint32_t launch, std::uint32_t stream) {
  constexpr double kUniformRange = 4294967296.0, kDeviation = 0.57735026918962576;  // of the sum
  const auto low = static_cast<std::uint32_t>(number), high = static_cast<std::uint32_t>(number >> 32);
  double sum = -2;
  for (const std::uint32_t bits : philox4x32(0, {{low, high, launch, stream}}).x) {
    sum += (bits + 0.5) / kUniformRange;
  }
  return std::max(0.1, 1 + cv * sum / kDeviation);
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
  const auto slots = static_cast<std::size_t>(std::min(schedule.co_resident_ctas, program.num_ctas()));
  places_ = places_of_slots(schedule.sm_groups, slots, schedule.launch, schedule.progress.clock_cv);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    running_.push_back(issue(slot));
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
      cta = issue(turn.slot);
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

CoResidentCtas::Cta CoResidentCtas::issue(std::size_t slot) {
  constexpr std::size_t kSmsOfTpc = 2;
  const double of_tpc = about_one(schedule_.progress.tpc_cv, slot % num_sms_ / kSmsOfTpc,
                                  static_cast<std::uint32_t>(schedule_.launch), kTpcStream);
  const double of_sm = places_[slot].clock * of_tpc;
  const auto at_rate = [of_sm](double rate) { return static_cast<std::int64_t>(kTicks / (of_sm * rate)); };
  Cta cta{CtaWalk(program_, next_cta_), next_cta_, at_rate(1), at_rate(schedule_.progress.younger_rate),
          at_rate(schedule_.progress.alone_rate)};
  ++next_cta_;
  return cta;
}

std::int64_t CoResidentCtas::ticks_of_step(std::size_t slot) {
  Cta& cta = running_[slot];
  bool oldest = true, alone = schedule_.ctas_per_sm > 1;
  for (std::size_t other = slot % num_sms_; other < running_.size(); other += num_sms_) {
    if (other == slot || running_[other].index == kRetired) continue;
    alone = false;
    oldest = oldest && cta.index < running_[other].index;
  }
  const std::int64_t ticks = alone ? cta.ticks_when_alone : oldest ? cta.ticks : cta.ticks_when_younger;
  if (schedule_.progress.step_cv == 0) return ticks;
  const std::uint64_t step = (static_cast<std::uint64_t>(cta.index) << 32) + cta.steps++;
  const auto launch = static_cast<std::uint32_t>(schedule_.launch);
  return static_cast<std::int64_t>(about_one(schedule_.progress.step_cv, step, launch, kStepStream) *
                                   static_cast<double>(ticks));
}

std::vector<SmPlace> places_of_slots(const std::vector<SmGroup>& groups, std::size_t slots,
                                     std::size_t launch, double clock_cv) {
  if (groups.empty()) return std::vector<SmPlace>(slots);
  std::vector<SmGroup> order = groups;
  std::vector<double> clocks;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    clocks.push_back(about_one(clock_cv, group, static_cast<std::uint32_t>(launch), kClockStream));
  }
  if (order.size() > 1) {
    const auto first = order.begin() + 1;
    std::rotate(first, first + static_cast<std::ptrdiff_t>(launch % (order.size() - 1)), order.end());
  }
  const auto sms = static_cast<std::size_t>(
      std::accumulate(order.begin(), order.end(), std::int64_t{0},
                      [](std::int64_t sum, const SmGroup& group) { return sum + group.sms; }));
  std::vector<SmPlace> places;
  while (places.size() < slots) {
    const std::vector<std::size_t> wave = shares(order, std::min(sms, slots - places.size()));
    for (std::size_t group = 0; group < order.size(); ++group) {
      places.insert(places.end(), wave[group], {order[group].partition, clocks[group]});
    }
  }
  return places;
}

}  // namespace tilescope
