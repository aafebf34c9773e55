// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/ctas/cta_schedule.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu_ref/numeric/philox.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {

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
      hand_out_(program.hand_out()),
      num_sms_(static_cast<std::size_t>(
          std::max<std::int64_t>(1, schedule.co_resident_ctas / schedule.ctas_per_sm))),
      in_step_(schedule.progress.step_cv == 0 && schedule.ragged_pace == 1 &&
               (schedule.ctas_per_sm == 1 ||
                (schedule.progress.younger_rate == 1 && schedule.progress.alone_rate == 1))) {
  slots_ = std::min(schedule.co_resident_ctas, program.num_ctas());
  if (program.waits_for_sums()) sums_.emplace(program);
  const std::vector<std::size_t> sizes = divide(static_cast<std::size_t>(slots_));
  turns_.emplace(sections_.size(), static_cast<std::int64_t>(kTicks));
  for (std::size_t section = 0; section < sections_.size(); ++section) {
    add(sections_[section].teams, take(static_cast<std::int64_t>(sizes[section])));
    if (!in_step_) {
      const std::size_t sm = sections_[section].sm;
      sms_.resize(std::max(sms_.size(), sm + 1));
      sms_[sm].slots.push_back(section);
      note_age(section, static_cast<std::int64_t>(section));
    }
    turns_->push({0, section});
  }
}

std::vector<std::size_t> CoResidentCtas::divide(std::size_t slots) {
  const ProgressRates& progress = schedule_.progress;
  const auto places = places_of_slots(schedule_.sm_groups, slots, schedule_.launch, progress.clock_cv);
  const auto launch = static_cast<std::uint32_t>(schedule_.launch);
  std::vector<std::size_t> sizes;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    constexpr std::size_t kSmsOfTpc = 2;
    const std::size_t sm = schedule_.sm_groups.empty() ? slot % num_sms_ : places[slot].sm;
    const double of_sm = places[slot].clock * about_one(progress.tpc_cv, sm / kSmsOfTpc, launch, kTpcStream);
    const auto at_rate = [of_sm](double rate) { return static_cast<std::int64_t>(kTicks / (of_sm * rate)); };
    Section section{places[slot].partition, sm, at_rate(1), at_rate(progress.younger_rate),
                    at_rate(progress.alone_rate)};
    if (in_step_ && !sections_.empty() && sections_.back().partition == section.partition &&
        sections_.back().ticks == section.ticks) {
      ++sizes.back();
    } else {
      sections_.push_back(std::move(section));
      sizes.push_back(1);
    }
  }
  return sizes;
}

bool CoResidentCtas::next(CtaRun& run) {
  while (true) {
    if (turn_) {
      Section& section = sections_[turn_->who];
      while (team_ < section.teams.size()) {
        Team& team = section.teams[team_];
        if (!team.held && !team.walk.next(run.group)) {
          replace(turn_->who, team_);
          continue;
        }
        ++team_;
        if (!may_step(team, run.group)) continue;
        run.ctas = team.ctas;
        return true;
      }
      if (!section.teams.empty()) turns_->push({turn_->time + ticks_of_step(turn_->who), turn_->who});
      turn_.reset();
    }
    if (turns_->empty()) return false;
    turn_ = turns_->pop();
    team_ = 0;
  }
}

bool CoResidentCtas::may_step(Team& team, AccessGroup& group) {
  if (team.held) group = *team.held;
  team.held.reset();
  if (sums_ && !sums_->may_add(group)) {
    team.held = group;
    return false;
  }
  if (sums_) sums_->add(group, team.ctas);
  return true;
}

CoResidentCtas::Numbers CoResidentCtas::take(std::int64_t ctas) {
  Numbers numbers;
  for (; ctas > 0 && next_cta_ < program_.num_ctas(); --ctas) numbers.push_back(next_cta_++);
  return numbers;
}

CoResidentCtas::Numbers CoResidentCtas::after(const Team& team) {
  if (hand_out_ != HandOut::there_and_back) return take(team.ctas);
  Numbers numbers;  // as far from the end of their round as those before were from the beginning of theirs
  for (std::int64_t cta = team.first; cta < team.first + team.ctas; ++cta) {
    const std::int64_t next = (cta / slots_ + 2) * slots_ - 1 - cta % slots_;
    if (next < program_.num_ctas()) numbers.push_back(next);
  }
  return numbers;
}

void CoResidentCtas::add(std::vector<Team>& teams, const Numbers& numbers) const {
  for (const std::int64_t cta : numbers) {
    const bool follows = !teams.empty() && teams.back().first + teams.back().ctas == cta;
    if (follows && in_step_with_last(cta)) {
      ++teams.back().ctas;
    } else {
      teams.push_back({CtaWalk(program_, cta), cta});
    }
  }
}

bool CoResidentCtas::in_step_with_last(std::int64_t cta) const {
  if (program_.whole_head) return false;
  const CtaWork last = program_.work(cta - 1), its = program_.work(cta);
  const bool same_head =
      its.batch_head == last.batch_head && its.first_head == last.first_head && its.split == last.split;
  if (!same_head || its.first_block != last.first_block + 1) return false;
  if (program_.scan == Scan::sawtooth && its.wave_parity != last.wave_parity) return false;
  const DqSlots slots = dq_slots(program_);  // of which some have several neighbours
  if (slots.count > 1 && slots.in_turn()) return false;
  if (program_.phases.empty()) {
    return program_.has_prologue(its.batch, its.first_block) ==
           program_.has_prologue(last.batch, last.first_block);
  }
  return program_.inner_slices(its, its.first_block)
      .same_tiles(program_.inner_slices(last, last.first_block));
}

void CoResidentCtas::replace(std::size_t number, std::size_t team) {
  std::vector<Team>& teams = sections_[number].teams;
  std::vector<Team> others;
  std::size_t end = team;
  AccessGroup unused;
  do {
    const Team& retired = teams[end++];
    for (int cta = 0; on_retired_ && cta < retired.ctas; ++cta) on_retired_();
    add(others, after(retired));
  } while (end < teams.size() && !teams[end].held && !CtaWalk(teams[end].walk).next(unused));
  const std::int64_t first = others.empty() ? kNone : others.front().first;
  const auto place = teams.erase(teams.begin() + static_cast<std::ptrdiff_t>(team),
                                 teams.begin() + static_cast<std::ptrdiff_t>(end));
  teams.insert(place, others.begin(), others.end());
  if (!in_step_) note_age(number, first);
}

void CoResidentCtas::note_age(std::size_t slot, std::int64_t cta) {
  Sm& sm = sms_[sections_[slot].sm];
  sm.running += (cta != kNone) - (sections_[slot].cta != kNone);
  sections_[slot].cta = cta;
  sections_[slot].ragged =
      schedule_.ragged_pace != 1 && cta != kNone && program_.work(cta).end_block == program_.num_blocks();
  sections_[slot].steps = 0;
  sm.oldest = std::numeric_limits<std::int64_t>::max();
  for (const std::size_t other : sm.slots) {
    if (sections_[other].cta != kNone) sm.oldest = std::min(sm.oldest, sections_[other].cta);
  }
}

std::int64_t CoResidentCtas::ticks_of_step(std::size_t number) {
  Section& section = sections_[number];
  if (in_step_) return section.ticks;
  const Sm& sm = sms_[section.sm];
  const bool alone = schedule_.ctas_per_sm > 1 && sm.running == 1;
  const std::int64_t whole = alone                      ? section.ticks_when_alone
                             : section.cta == sm.oldest ? section.ticks
                                                        : section.ticks_when_younger;
  const auto ticks =
      section.ragged ? static_cast<std::int64_t>(schedule_.ragged_pace * static_cast<double>(whole)) : whole;
  if (schedule_.progress.step_cv == 0) return ticks;
  const std::uint64_t step = (static_cast<std::uint64_t>(section.cta) << 32) + section.steps++;
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
    std::size_t first = 0;  // SM of the group
    for (std::size_t group = 0; group < order.size(); ++group) {
      for (std::size_t sm = first; sm < first + wave[group]; ++sm) {
        places.push_back({order[group].partition, clocks[group], sm});
      }
      first += static_cast<std::size_t>(order[group].sms);
    }
  }
  return places;
}

}  // namespace tilescope
