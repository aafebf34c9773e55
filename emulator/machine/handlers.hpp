// SPDX-License-Identifier: Apache-2.0
// The table of what executes which instruction. A family of instructions is registered once, by the words
// that begin its opcode; the longest entry that fits is asked for the function that executes one form of it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

enum class Outcome : std::uint8_t {
  next,     // executed
  poll,     // executed, and found what it asked for not yet done: others should go on first (a failed
            // mbarrier.try_wait)
  wait,     // not executed: the warp asks again at its next turn (a barrier)
  exit,     // the active lanes are done
  jump,     // a branch to the first operand
  scatter,  // where each active lane goes on is in the warp's `next`
};

using Handler = Outcome (*)(Warp&, const ptx::Instruction&);

/// Which lanes must be at an instruction before it is executed.
enum class Converge : std::uint8_t {
  none,
  members,    // those of the membermask, the last operand (shfl.sync, vote.sync, bar.warp.sync)
  any_place,  // those of the membermask, at this instruction or another of its kind (bar.warp.sync)
  warp,       // all that live (.aligned, bar.sync)
};

/// Of instructions that change nothing here.
template <Outcome outcome>
Outcome simply(Warp&, const ptx::Instruction&) {
  return outcome;
}

struct Execution {
  Handler handler = nullptr;
  Converge converge = Converge::none;
};

/// Chooses the function for an instruction's types and modifiers; throws std::runtime_error at what is not
/// known.
using Select = Execution (*)(const ptx::Instruction&);

/// Whether an instruction has one of some lists of operands, with | between them: a an address, t one with
/// coordinates, v a register or a number, r a register, p a predicate or `_`, _ a register or `_`, l a label,
/// * any one.
bool operands_fit(const ptx::Instruction& instruction, std::string_view lists);

class HandlerTable {
 public:
  /// @param words  the begin of the opcode up to a dot, "cp.async.bulk"
  /// @param operands  as of operands_fit(). Empty where `select` looks at them.
  void add(std::string_view words, Select select, std::string_view operands = {}) {
    by_words_[std::string(words)] = {select, {}, operands};
  }
  /// What executes every form.
  void add(std::string_view words, Execution always, std::string_view operands = {}) {
    by_words_[std::string(words)] = {nullptr, always, operands};
  }
  /// Throws std::runtime_error with line and text at an instruction that no entry knows.
  Execution find(const ptx::Instruction& instruction) const;

  void (*on_cta_begin)(Cta&) = nullptr;  // before its first step
  void (*on_cta_end)(Cta&) = nullptr;    // when its last thread has left

 private:
  struct Entry {
    Select select;
    Execution always;  // without `select`
    std::string_view operands;
  };
  std::map<std::string, Entry, std::less<>> by_words_;
};

/// For the search for races: lanes have met at bar.warp.sync.
void join_lanes(Warp& warp, LaneMask lanes);

/// For the search for races: the agent that a warp's copies (cp.async) are, whose clock counts their groups.
std::uint32_t agent_of_copies(Warp& warp);

/// Ordinary instructions, up to sm_80.
void add_ordinary_handlers(HandlerTable& table);

/// Executes a launch. Throws DeviceError at what the kernel does wrong: bounds, deadlock, the step limit.
Report run(const Launch& launch, const Memory& memory, const Options& options, const HandlerTable& table);

}  // namespace tilescope::gpu::emulator
