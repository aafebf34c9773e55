// SPDX-License-Identifier: Apache-2.0
// What handlers of ordinary instructions are made of: loops over the active lanes, and the choice of a
// function by type.
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "emulator/machine/handlers.hpp"

// Compiles a function for processors with AVX2 and fused multiply-add too, where the compiler can; the right
// one is chosen at the program's start. clang 16 can not of templates.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define TILESCOPE_HASWELL_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define TILESCOPE_HASWELL_CLONES
#endif
// Of what many handlers begin or end with: one function for all of them, in place of a copy in each.
#define TILESCOPE_SHARED_BY_HANDLERS __attribute__((noinline))
// Before a loop whose turns do not touch what others write, though the compiler could not tell.
#ifdef __clang__
#define TILESCOPE_LANES_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define TILESCOPE_LANES_APART _Pragma("GCC ivdep")
#endif

namespace tilescope::gpu::emulator {

/// f(lane) for the active lanes. With all of them active, a loop that the compiler turns into vectors: a
/// result may be the register of an operand, but lanes never mix.
template <class F>
inline void each_lane(const Warp& warp, F&& f) {
  if (warp.active == ~0u) {
    TILESCOPE_LANES_APART
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for_lanes(warp.active, f);
  }
}

/// Handlers of one, two and three operands of type T; R is the result's.
template <class Op, class T, class R = T>
Outcome unary(Warp& warp, const ptx::Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  R* const result = warp.write<R>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = Op{}(a[lane]); });
  return Outcome::next;
}
template <class Op, class T, class R = T, class B = T>
Outcome binary(Warp& warp, const ptx::Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const B* const b = warp.read<B>(instruction.operands[2]);
  R* const result = warp.write<R>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = Op{}(a[lane], b[lane]); });
  return Outcome::next;
}
template <class Op, class T, class R = T>
Outcome ternary(Warp& warp, const ptx::Instruction& instruction) {
  const T* const a = warp.read<T>(instruction.operands[1]);
  const T* const b = warp.read<T>(instruction.operands[2]);
  const R* const c = warp.read<R>(instruction.operands[3]);
  R* const result = warp.write<R>(instruction.operands[0]);
  each_lane(warp, [=](int lane) { result[lane] = Op{}(a[lane], b[lane], c[lane]); });
  return Outcome::next;
}

[[noreturn]] inline void unknown_form() { throw std::runtime_error("this form is not known"); }

/// Throws unless every modifier is a type or one of these.
inline void only_modifiers(const ptx::Instruction& instruction,
                           std::initializer_list<std::string_view> known) {
  std::size_t types = 0;
  for (const std::string_view modifier : instruction.modifiers) {
    bool is_known = false;
    for (const std::string_view name : known) is_known |= name == modifier;
    types += !is_known;
  }
  if (types != instruction.types.size()) unknown_form();
}
inline ptx::Type only_type(const ptx::Instruction& instruction) {
  if (instruction.types.size() != 1) unknown_form();
  return instruction.types[0];
}
inline void operand_count(const ptx::Instruction& instruction, std::size_t least, std::size_t most) {
  if (instruction.operands.size() < least || instruction.operands.size() > most)
    throw std::runtime_error("wrong number of operands");
}

/// Throws unless there are so many operands, each a register or a number.
inline void plain_operands(const ptx::Instruction& instruction, std::size_t count) {
  operand_count(instruction, count, count);
  for (const ptx::Operand& operand : instruction.operands) {
    if (operand.kind != ptx::Operand::Kind::reg && operand.kind != ptx::Operand::Kind::constant)
      unknown_form();
  }
}

/// Throws unless the operand is a list of so many registers of so many bytes; in place of a list of one, it
/// may be the register.
inline void register_list(const ptx::Operand& operand, std::size_t count, int bytes) {
  const auto fits = [bytes](const ptx::Operand& one) {
    return one.kind == ptx::Operand::Kind::reg && one.bytes == bytes;
  };
  const bool is_list = operand.kind == ptx::Operand::Kind::vector;
  if (is_list ? operand.elements.size() != count : count != 1 || !fits(operand)) {
    throw std::runtime_error("a list of " + std::to_string(count) + " registers expected");
  }
  for (const ptx::Operand& element : operand.elements) {
    if (!fits(element)) throw std::runtime_error("registers of " + std::to_string(bytes) + " bytes expected");
  }
}

/// Throws where a warp of fewer than 32 threads, or that some have left, executes what takes all of them.
inline void require_whole_warp(const Warp& warp) {
  if (warp.active != ~0u) throw Fault("all 32 lanes of a warp take part, and some are not there");
}

/// The families of ordinary instructions.
void add_integer_handlers(HandlerTable& table);
void add_carry_handlers(HandlerTable& table);
void add_bit_handlers(HandlerTable& table);
void add_float_handlers(HandlerTable& table);
void add_comparison_handlers(HandlerTable& table);
void add_conversion_handlers(HandlerTable& table);
void add_move_handlers(HandlerTable& table);
void add_control_handlers(HandlerTable& table);
void add_call_handlers(HandlerTable& table);
void add_memory_handlers(HandlerTable& table);
void add_atomic_handlers(HandlerTable& table);
void add_barrier_handlers(HandlerTable& table);
void add_exchange_handlers(HandlerTable& table);
void add_matrix_handlers(HandlerTable& table);
void add_cp_async_handlers(HandlerTable& table);

}  // namespace tilescope::gpu::emulator
