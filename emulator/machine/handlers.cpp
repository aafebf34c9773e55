// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/handlers.hpp"

#include <fmt/format.h>

#include "emulator/machine/lanes.hpp"
#include "emulator/ptx/lexer.hpp"

namespace tilescope::gpu::emulator {

Execution HandlerTable::find(const ptx::Instruction& instruction) const {
  if (!instruction.unknown.empty()) throw std::runtime_error(instruction.unknown);
  const auto fail = [&](const std::string& reason) {
    throw std::runtime_error(
        fmt::format("PTX line {}: {}: {}", instruction.line, reason, ptx::printable(instruction.text)));
  };
  for (std::string_view words = instruction.opcode; !words.empty();) {
    if (const auto found = by_words_.find(words); found != by_words_.end()) {
      try {
        return found->second(instruction);
      } catch (const std::runtime_error& error) {
        fail(error.what());
      }
    }
    const std::size_t dot = words.rfind('.');
    words = words.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  fail("unknown instruction");
  return {};
}

void add_ordinary_handlers(HandlerTable& table) {
  add_integer_handlers(table);
  add_carry_handlers(table);
  add_bit_handlers(table);
  add_float_handlers(table);
  add_comparison_handlers(table);
  add_conversion_handlers(table);
  add_move_handlers(table);
  add_control_handlers(table);
  add_call_handlers(table);
  add_memory_handlers(table);
  add_atomic_handlers(table);
  add_barrier_handlers(table);
  add_exchange_handlers(table);
  add_matrix_handlers(table);
  add_cp_async_handlers(table);
}

}  // namespace tilescope::gpu::emulator
