// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/handlers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/lanes.hpp"
#include "emulator/ptx/lexer.hpp"

namespace tilescope::gpu::emulator {

namespace {

bool fits(const ptx::Operand& operand, char kind) {
  using Kind = ptx::Operand::Kind;
  const bool is_register = operand.kind == Kind::reg, is_none = operand.kind == Kind::none;
  const bool is_number = operand.kind == Kind::constant || (is_register && operand.bytes > 0);
  switch (kind) {
    case 'a':
      return operand.kind == Kind::address && operand.elements.size() == 1;
    case 't':
      return operand.kind == Kind::address && operand.elements.size() == 2;
    case 'v':
      return is_number;
    case 'r':
      return is_register && is_number;
    case 'p':
      return is_none || (is_register && operand.bytes == 0);
    case '_':
      return is_none || is_register;
    case 'l':
      return operand.kind == Kind::label;
    default:
      return true;
  }
}

}  // namespace

bool operands_fit(const ptx::Instruction& instruction, std::string_view lists) {
  const std::vector<ptx::Operand>& operands = instruction.operands;
  for (std::size_t begin = 0; begin <= lists.size();) {
    const std::size_t end = std::min(lists.find('|', begin), lists.size());
    const std::string_view kinds = lists.substr(begin, end - begin);
    if (std::equal(operands.begin(), operands.end(), kinds.begin(), kinds.end(), fits)) return true;
    begin = end + 1;
  }
  return false;
}

Execution HandlerTable::find(const ptx::Instruction& instruction) const {
  if (!instruction.unknown.empty()) throw std::runtime_error(instruction.unknown);
  const auto fail = [&](const std::string& reason) {
    throw std::runtime_error(
        fmt::format("PTX line {}: {}: {}", instruction.line, reason, ptx::printable(instruction.text)));
  };
  for (std::string_view words = instruction.opcode; !words.empty();) {
    if (const auto found = by_words_.find(words); found != by_words_.end()) {
      try {
        const auto& [select, always, operands] = found->second;
        if (!operands.empty() && !operands_fit(instruction, operands))
          throw std::runtime_error("operands other than it has");
        return select ? select(instruction) : always;
      } catch (const std::exception& error) {
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
