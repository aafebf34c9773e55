// SPDX-License-Identifier: Apache-2.0
// Variables: where they lie, and what they begin with.
#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "emulator/ptx/names.hpp"
#include "emulator/ptx/parser.hpp"

namespace tilescope::gpu::emulator::ptx {
namespace {

// What PTX allows, or where that is not said, what this machine can hold.
constexpr std::uint64_t kMostSharedEnd = kSharedBegin + (227 << 10), kMostVariableBytes = 1ull << 31;
constexpr std::int64_t kMostAlign = 1 << 16;

}  // namespace

Variable Parser::read_variable(Space space) {
  Variable variable;
  variable.space = space;
  int element_bytes = 0;
  while (lexer_.peek().text.substr(0, 1) == ".") {
    const Token token = lexer_.next();
    if (token.is(".align")) {
      variable.align = static_cast<std::uint32_t>(read_integer(1, kMostAlign, "an alignment"));
      if (!std::has_single_bit(variable.align)) lexer_.fail("an alignment that is no power of two", token);
    } else if (const auto type = type_of(token.text.substr(1))) {
      variable.type = *type;
      element_bytes = bytes_of(*type);
    } else if (!token.is(".ptr") && !token.is(".global") && !token.is(".shared") && !token.is(".const")) {
      lexer_.fail("unknown attribute of a variable", token);
    }
  }
  variable.align = std::max(variable.align, static_cast<std::uint32_t>(element_bytes));
  variable.name = lexer_.next().text;
  variable.bytes = static_cast<std::uint64_t>(element_bytes);
  while (lexer_.accept("[")) {
    variable.is_array = true;
    if (lexer_.accept("]")) {
      variable.bytes = 0;
    } else {
      variable.bytes *= static_cast<std::uint64_t>(read_integer(0, 1ll << 31, "a length"));
      if (variable.bytes > kMostVariableBytes) lexer_.fail("a variable of more than 2 GiB");
      lexer_.expect("]");
    }
  }
  if (space == Space::parameter) return variable;
  if (space == Space::global || space == Space::constant) {
    variable.data.reset(new (std::align_val_t{256}) std::byte[std::max<std::uint64_t>(variable.bytes, 1)](),
                        [](std::byte* data) { ::operator delete[](data, std::align_val_t{256}); });
    if (lexer_.accept("=")) read_initial_values(variable, element_bytes);
  }
  lexer_.expect(";");
  return variable;
}

void Parser::read_initial_values(const Variable& variable, int element_bytes) {
  std::uint64_t at = 0;
  do {
    while (lexer_.accept("{")) {
    }
    const std::int64_t value = read_initial_value();
    if (at + static_cast<std::uint64_t>(element_bytes) > variable.bytes)
      lexer_.fail("more values than the variable has");
    std::memcpy(variable.data.get() + at, &value, static_cast<std::size_t>(element_bytes));
    at += static_cast<std::uint64_t>(element_bytes);
    while (lexer_.accept("}")) {
    }
  } while (lexer_.accept(","));
}

std::int64_t Parser::read_initial_value() {
  if (const Token token = lexer_.peek(); token.is("-") || begins_number(token.text)) return read_integer();
  const bool is_generic = lexer_.accept("generic");
  if (is_generic) lexer_.expect("(");
  const Token name = lexer_.next();
  if (is_generic) lexer_.expect(")");
  std::int64_t address = 0;
  const auto variable = std::ranges::find(module_.variables, name.text, &Variable::name);
  if (variable != module_.variables.end()) {
    address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(variable->data.get()));
  } else if (const auto function = address_of_function(name.text)) {
    address = static_cast<std::int64_t>(*function);
  } else {
    lexer_.fail("a number, or the name of a variable or a function, expected", name);
  }
  return lexer_.accept("+") ? address + read_integer() : address;
}

void Parser::place(Variable& variable, std::uint32_t& end, std::uint64_t most) {
  variable.offset = rounded_up(end, variable.align);
  if (variable.offset + variable.bytes > most) {
    lexer_.fail("no room for " + variable.name + ": variables of its space end at byte " +
                std::to_string(most));
  }
  end = static_cast<std::uint32_t>(variable.offset + variable.bytes);
}

void Parser::place_shared(Kernel& kernel, Variable& variable) {
  place(variable, kernel.static_shared_end, kMostSharedEnd);
  kernel.shared.push_back(variable);
}

}  // namespace tilescope::gpu::emulator::ptx
