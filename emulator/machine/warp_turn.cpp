// SPDX-License-Identifier: Apache-2.0
// Lanes at the same instruction go on as one group. The group at the lowest instruction goes first, which has
// lanes meet again behind branches as the compiler laid them out; .sync instructions wait for the lanes that
// they name.
#include "emulator/machine/warp_turn.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tilescope::gpu::emulator {
namespace {

/// The lanes that `lane` of a group waits for at a .sync instruction.
LaneMask awaited(const Warp& warp, const Step& step, LaneMask lanes) {
  if (step.execution.converge == Converge::warp) return warp.live();
  LaneMask mask = 0;
  const ptx::Operand& operand = step.instruction->operands.back();
  for_lanes(lanes, [&](int lane) { mask |= static_cast<LaneMask>(warp.value(operand, lane)); });
  return mask & warp.live();
}

/// @throws Fault where the lanes that execute a .sync instruction are not all that it names
void check_members(const Warp& warp, const Step& step, LaneMask group) {
  for_lanes(warp.active, [&](int lane) {
    const auto mask = static_cast<LaneMask>(warp.value(step.instruction->operands.back(), lane));
    if ((mask >> lane & 1) == 0) throw Fault("the membermask does not name a lane that executes", lane);
    if ((mask & group & ~warp.active) != 0)
      throw Fault("lanes that the membermask names are guarded off", lane);
  });
}

/// An asking loop takes fewer instructions than this from one time to the next.
constexpr std::uint64_t kAskingLoop = 64;

class Turn {
 public:
  Turn(Warp& warp, Program& program, std::uint64_t most) : warp_(warp), program_(program), left_(most) {}

  TurnEnd run(std::size_t first);
  std::uint32_t pc() const { return current_; }

 private:
  bool run_group(std::size_t index);
  /// @param lanes  of a group; `active` of them are not guarded off
  bool may_execute(const Step& step, LaneMask active, LaneMask lanes) const;
  void count(std::uint32_t pc);
  bool branch(std::size_t index, LaneMask taken, std::uint32_t target);
  void scatter(std::size_t index);
  void poll(LaneMask lanes);
  bool release_meeting();
  /// Sorts groups and joins those that have met.
  void tidy();
  /// Where the next group stands behind an instruction.
  std::uint32_t next_group_after(std::uint32_t pc) const;
  const Step& step_at(std::uint32_t pc) const {
    if (pc >= program_.steps.size()) throw Fault("execution runs past the end of the kernel");
    return program_.steps[pc];
  }

  Warp& warp_;
  Program& program_;
  std::uint64_t left_;
  std::uint32_t current_ = 0;
  LaneMask resting_ = 0;  // asked in vain: others go first
  bool progressed_ = false;
};

TurnEnd Turn::run(std::size_t first) {
  tidy();
  std::size_t index = first < warp_.groups.size() ? first : 0;
  bool ran = false;
  while (index < warp_.groups.size() && left_ > 0) {
    if ((warp_.groups[index].lanes & resting_) == 0 && run_group(index)) {
      ran = true;
      tidy();
      index = 0;
    } else {
      ++index;
    }
  }
  if (warp_.groups.empty()) return TurnEnd::done;
  if (!ran && release_meeting()) ran = true;
  progressed_ |= ran && warp_.since_poll > kAskingLoop;
  return progressed_ ? TurnEnd::progressed : TurnEnd::idle;
}

void Turn::tidy() {
  auto& groups = warp_.groups;
  if (groups.size() < 2) return;
  std::ranges::sort(groups, {}, &LaneGroup::pc);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < groups.size(); ++i) {
    if (groups[i].pc == groups[kept].pc) {
      groups[kept].lanes |= groups[i].lanes;
    } else {
      groups[++kept] = groups[i];
    }
  }
  groups.resize(kept + 1);
}

bool Turn::may_execute(const Step& step, LaneMask active, LaneMask lanes) const {
  if (step.execution.converge == Converge::none) return true;
  return (awaited(warp_, step, active) & ~lanes) == 0;
}

void Turn::count(std::uint32_t pc) {
  ++program_.executed[pc];
  ++warp_.cta.run.report.steps;
  ++warp_.since_poll;
  --left_;
}

/// True if the group split.
bool Turn::branch(std::size_t index, LaneMask taken, std::uint32_t target) {
  LaneGroup& group = warp_.groups[index];
  const LaneMask staying = group.lanes & ~taken;
  if (staying == 0) {
    group.pc = target;
    return false;
  }
  group = {group.pc + 1, staying};
  warp_.groups.push_back({target, taken});
  return true;
}

/// The lanes that executed go on where `next` says, those that were guarded off behind the instruction.
void Turn::scatter(std::size_t index) {
  LaneMask left = warp_.active;
  LaneGroup& group = warp_.groups[index];
  group = {group.pc + 1, group.lanes & ~left};
  if (group.lanes == 0) warp_.groups.erase(warp_.groups.begin() + static_cast<std::ptrdiff_t>(index));
  while (left != 0) {
    const std::uint32_t target = warp_.next[static_cast<std::size_t>(__builtin_ctz(left))];
    LaneMask lanes = 0;
    for_lanes(left, [&](int lane) { lanes |= warp_.next[lane] == target ? 1u << lane : 0; });
    warp_.groups.push_back({target, lanes});
    left &= ~lanes;
  }
}

void Turn::poll(LaneMask lanes) {
  const bool asks_again = warp_.since_poll <= kAskingLoop;
  progressed_ |= !asks_again;
  if (asks_again) warp_.cta.run.report.asking_steps += warp_.since_poll;
  warp_.since_poll = 0;
  resting_ |= lanes;
}

std::uint32_t Turn::next_group_after(std::uint32_t pc) const {
  std::uint32_t next = ~0u;
  if (warp_.groups.size() == 1) return next;
  for (const LaneGroup& other : warp_.groups) next = other.pc > pc ? std::min(next, other.pc) : next;
  return next;
}

/// Executes lanes from where they are to where they split, meet others, ask in vain, or have had their turn.
/// False if they could not execute anything.
bool Turn::run_group(std::size_t index) {
  const std::uint32_t meeting = next_group_after(warp_.groups[index].pc);
  for (bool any = false;; any = true) {
    LaneGroup& group = warp_.groups[index];
    current_ = group.pc;
    if (any && (left_ == 0 || current_ == meeting || (group.lanes & resting_) != 0)) return true;
    const Step& step = step_at(current_);
    warp_.active = group.lanes;
    if (step.guarded) warp_.active &= warp_.predicate(step.instruction->guard);
    if (warp_.active == 0) {
      ++group.pc;
      continue;
    }
    if (!may_execute(step, warp_.active, group.lanes)) return any;
    if (step.execution.converge == Converge::warp && warp_.active != group.lanes)
      throw Fault("some lanes are guarded off where all of the warp execute, or none");
    if (step.execution.converge == Converge::members) check_members(warp_, step, group.lanes);
    warp_.instruction = step.instruction;
    const Outcome outcome = step.execution.handler(warp_, *step.instruction);
    if (outcome == Outcome::wait) {
      resting_ |= group.lanes;
      return any;
    }
    count(current_);
    if (outcome == Outcome::jump) {
      if (branch(index, warp_.active, step.instruction->operands[0].offset) || warp_.groups.size() > 1)
        return true;
      continue;
    }
    if (outcome == Outcome::scatter) {
      scatter(index);
      return true;
    }
    ++group.pc;
    if (outcome == Outcome::poll) poll(group.lanes);
    if (outcome == Outcome::exit) {
      progressed_ = true;
      warp_.living &= ~warp_.active;
      group.lanes &= ~warp_.active;
      if (group.lanes != 0) continue;
      warp_.groups.erase(warp_.groups.begin() + static_cast<std::ptrdiff_t>(index));
      return true;
    }
  }
}

/// Lanes that wait at bar.warp.sync of different places meet if they name each other.
bool Turn::release_meeting() {
  LaneMask waiting = 0;
  for (const LaneGroup& group : warp_.groups) {
    if (step_at(group.pc).execution.converge == Converge::any_place) waiting |= group.lanes;
  }
  LaneMask released = 0;
  for (LaneGroup& group : warp_.groups) {
    const Step& step = step_at(group.pc);
    if (step.execution.converge != Converge::any_place) continue;
    if ((awaited(warp_, step, group.lanes) & ~waiting) != 0) continue;
    count(group.pc);
    ++group.pc;
    released |= group.lanes;
  }
  if (released != 0) join_lanes(warp_, released);
  return released != 0;
}

std::string at_instruction(const ptx::Instruction& instruction) {
  constexpr std::size_t kMost = 160;  // a product names more registers than anyone reads
  return fmt::format("line {}: {}{}", instruction.line, instruction.text.substr(0, kMost),
                     instruction.text.size() > kMost ? " ..." : "");
}

}  // namespace

Program::Program(const ptx::Kernel& kernel, const HandlerTable& table)
    : kernel(kernel), executed(kernel.instructions.size()) {
  steps.reserve(kernel.instructions.size());
  for (const ptx::Instruction& instruction : kernel.instructions)
    steps.push_back(
        {&instruction, table.find(instruction), instruction.guard.kind != ptx::Operand::Kind::none});
}

std::string place_of(const Warp& warp, const Program& program) {
  const Extent& cta = warp.cta.index;
  std::string words = fmt::format("CTA ({}, {}, {}), warp {}", cta.x, cta.y, cta.z, warp.index);
  for (const LaneGroup& group : warp.groups) {
    words += fmt::format("; lanes {:#010x} at ", group.lanes);
    words +=
        group.pc < program.steps.size() ? at_instruction(*program.steps[group.pc].instruction) : "the end";
  }
  return words;
}

TurnEnd take_turn(Warp& warp, Program& program, std::uint64_t most, std::size_t first) {
  Turn turn(warp, program, most);
  try {
    return turn.run(first);
  } catch (const Fault& fault) {
    const Extent& cta = warp.cta.index;
    const std::uint32_t pc = std::min(turn.pc(), static_cast<std::uint32_t>(program.steps.size() - 1));
    throw DeviceError(
        fmt::format("kernel {}, CTA ({}, {}, {}), warp {}, {}{}: {}", program.kernel.name, cta.x, cta.y,
                    cta.z, warp.index, fault.lane >= 0 ? fmt::format("lane {}, ", fault.lane) : "",
                    at_instruction(*program.steps[pc].instruction), fault.what()),
        fault.kind, {fault.line != 0 ? fault.line : program.steps[pc].instruction->line});
  }
}

}  // namespace tilescope::gpu::emulator
