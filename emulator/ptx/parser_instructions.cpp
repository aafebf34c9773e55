// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <stdexcept>
#include <utility>

#include "emulator/ptx/names.hpp"
#include "emulator/ptx/parser.hpp"

namespace tilescope::gpu::emulator::ptx {

void Parser::read_instruction(Kernel& kernel, KernelBuilder& builder) {
  Instruction instruction;
  const Token first = lexer_.peek();
  if (lexer_.accept("@")) {
    const bool negated = lexer_.accept("!");
    const Token name = lexer_.next();
    const auto guard = builder.find(name);
    if (!guard || guard->bytes != 0) lexer_.fail("a predicate expected", name);
    instruction.guard = *guard;
    instruction.guard.negated = negated;
  }
  const Token opcode = lexer_.next();
  if (lexer_.accept(":")) {
    if (lexer_.accept(".branchtargets")) return read_branch_targets(opcode.text);
    builder.declare_label(opcode.text);
    return;
  }
  instruction.opcode = opcode.text;
  instruction.line = opcode.line;
  instruction.source = place_;
  instruction.inlined_at = inlined_at_;
  for (std::size_t dot = opcode.text.find('.'); dot != std::string_view::npos;) {
    const std::size_t end = opcode.text.find('.', dot + 1);
    instruction.modifiers.push_back(
        opcode.text.substr(dot + 1, end == std::string_view::npos ? end : end - dot - 1));
    if (const auto type = type_of(instruction.modifiers.back())) instruction.types.push_back(*type);
    dot = end;
  }
  const Lexer operands = lexer_;
  try {
    read_operands(kernel, builder, instruction);
    lexer_.expect(";");
  } catch (const std::runtime_error& error) {
    instruction.unknown = error.what();
    instruction.operands.clear();
    builder.forget_references();
    lexer_ = operands;
    if (!skip_operands()) throw;
  }
  instruction.text = lexer_.text_since(first);
  builder.add(std::move(instruction));
}

void Parser::read_operands(Kernel& kernel, KernelBuilder& builder, Instruction& instruction) {
  if (instruction.opcode == "call" || instruction.opcode == "call.uni") {
    read_call(kernel, builder, instruction);
  } else if (instruction.opcode.starts_with("brx.idx")) {
    read_indexed_branch(builder, instruction);
  } else if (instruction.opcode.starts_with("createpolicy")) {  // of the caches, which goes unread
    instruction.operands.push_back(read_operand(builder, 0));
    while (!lexer_.peek().is(";") && !lexer_.peek().text.empty()) lexer_.next();
  } else if (!lexer_.peek().is(";")) {
    do {
      instruction.operands.push_back(read_operand(builder, instruction.operands.size()));
    } while (lexer_.accept(","));
  }
}

/// Past the `;` of an instruction that cannot be read; false where its block ends first.
bool Parser::skip_operands() {
  for (int depth = 0; !lexer_.accept(";");) {
    const Token token = lexer_.next();
    depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
    if (depth < 0 || token.text.empty()) return false;
  }
  return true;
}

Operand Parser::read_operand(KernelBuilder& builder, std::size_t index) {
  Operand operand;
  if (lexer_.accept("{")) {
    operand.kind = Operand::Kind::vector;
    operand.elements = read_list(builder);
    lexer_.expect("}");
    return operand;
  }
  if (lexer_.accept("[")) return read_address(builder);
  operand = read_simple(builder, index);
  if (!lexer_.accept("|")) return operand;
  Operand pair;
  pair.kind = Operand::Kind::vector;
  pair.elements = {operand, read_simple(builder, index)};
  return pair;
}

void Parser::read_branch_targets(std::string_view label) {
  std::vector<Token>& targets = branch_targets_[label];
  targets.clear();
  do {
    targets.push_back(lexer_.next());
  } while (lexer_.accept(","));
  lexer_.expect(";");
}

void Parser::read_indexed_branch(KernelBuilder& builder, Instruction& branch) {
  branch.operands.push_back(read_simple(builder, 0));
  lexer_.expect(",");
  const Token name = lexer_.next();
  const auto targets = branch_targets_.find(name.text);
  if (targets == branch_targets_.end()) lexer_.fail("the label of a list of branch targets expected", name);
  for (const Token& target : targets->second) {
    Operand label;
    label.kind = Operand::Kind::label;
    builder.refer_to_label(target, branch.operands.size());
    branch.operands.push_back(label);
  }
}

std::vector<Operand> Parser::read_list(KernelBuilder& builder) {
  std::vector<Operand> list;
  do {
    list.push_back(read_simple(builder, 0));
  } while (lexer_.accept(","));
  return list;
}

Operand Parser::read_simple(KernelBuilder& builder, std::size_t index) {
  const bool negated = lexer_.accept("!");
  const bool minus = lexer_.accept("-");
  const Token token = lexer_.next();
  if (token.is("_")) return {};
  if (begins_number(token.text) || token.is("WARP_SZ"))
    return builder.constant(minus ? -number(token) : number(token));
  if (minus) lexer_.fail("a number expected", token);
  if (auto found = builder.find(token)) {
    if (found->kind == Operand::Kind::constant && lexer_.accept("+"))
      return builder.constant(found->value + read_integer());
    found->negated = negated;
    return *found;
  }
  if (const auto function = address_of_function(token.text))
    return builder.constant(static_cast<std::int64_t>(*function));
  if (token.text.starts_with("%")) lexer_.fail("no such register", token);
  Operand label;
  label.kind = Operand::Kind::label;
  builder.refer_to_label(token, index);
  return label;
}

Operand Parser::read_address(KernelBuilder& builder) {
  Operand address;
  address.kind = Operand::Kind::address;
  const Token token = lexer_.next();
  const auto base =
      begins_number(token.text) ? std::optional(builder.constant(number(token))) : builder.find(token);
  if (!base || base->bytes < 4) lexer_.fail("an address expected", token);
  address.elements.push_back(*base);
  if (lexer_.accept("+")) {
    address.value = read_integer();
  } else if (lexer_.accept("-")) {
    address.value = -read_integer();
  }
  if (lexer_.accept(",")) {
    lexer_.expect("{");
    Operand& coordinates = address.elements.emplace_back();
    coordinates.kind = Operand::Kind::vector;
    coordinates.elements = read_list(builder);
    lexer_.expect("}");
  }
  lexer_.expect("]");
  return address;
}

}  // namespace tilescope::gpu::emulator::ptx
