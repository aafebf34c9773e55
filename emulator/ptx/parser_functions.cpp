// SPDX-License-Identifier: Apache-2.0
// Functions and calls. A kernel's functions are read behind it, where its registers and labels are no longer
// known.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "emulator/ptx/parser.hpp"

namespace tilescope::gpu::emulator::ptx {

SkippedFunction skip_function(Lexer& lexer) {
  if (lexer.accept("(")) lexer.skip_past(")");
  SkippedFunction function{lexer.next()};
  while (!lexer.peek().is("{") && !lexer.peek().is(";")) {
    if (lexer.next().text.empty()) lexer.fail("a function without end");
  }
  function.has_body = lexer.next().is("{");
  return function;
}

void skip_block(Lexer& lexer) {
  for (int depth = 1; depth > 0;) {
    const Token token = lexer.next();
    if (token.text.empty()) lexer.fail("a function without end");
    depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
  }
}

/// Functions may stand behind the kernels that call them.
void Parser::find_functions(std::string_view text) {
  if (text.find(".func") == std::string_view::npos) return;
  for (Lexer lexer(text); !lexer.peek().text.empty();) {
    if (!lexer.next().is(".func")) continue;
    const Lexer begin = lexer;
    const SkippedFunction function = skip_function(lexer);
    if (!function.has_body) continue;
    functions_.emplace(function.name.text, begin);
    skip_block(lexer);
  }
}

std::vector<Variable> Parser::read_call_parameters(Kernel& kernel, KernelBuilder& builder) {
  std::vector<Variable> variables;
  if (!lexer_.accept("(")) return variables;
  while (!lexer_.accept(")")) {
    lexer_.expect(".param");
    Variable& variable = variables.emplace_back(read_variable(Space::parameter));
    variable.of_call = true;
    place(variable, kernel.local_bytes, kMostLocalBytes);
    builder.declare_variable(variable);
    lexer_.accept(",");
  }
  return variables;
}

/// Reads the functions that are called, and those that they call. Functions that reach themselves are marked.
void Parser::read_functions(Kernel& kernel, KernelBuilder& builder) {
  const Lexer behind = lexer_;
  for (std::size_t i = 0; i < kernel.functions.size(); ++i) {
    lexer_ = functions_.at(kernel.functions[i].name);
    Function function = kernel.functions[i];
    builder.begin_function(function);
    calls_ = {};
    function.entry = static_cast<std::uint32_t>(kernel.instructions.size());
    function.local_begin = kernel.local_bytes;
    function.results = read_call_parameters(kernel, builder);
    lexer_.next();
    function.parameters = read_call_parameters(kernel, builder);
    while (!lexer_.accept("{")) lexer_.next();
    read_body(kernel, builder);
    Instruction& end = kernel.instructions.emplace_back();
    end.opcode = "ret";
    end.text = "ret;";
    end.line = lexer_.peek().line;
    builder.end_function();
    function.local_end = kernel.local_bytes;
    function.calls = std::move(calls_);
    kernel.functions[i] = std::move(function);
  }
  lexer_ = behind;
  for (std::size_t i = 0; i < kernel.functions.size(); ++i) {
    std::vector<bool> reached(kernel.functions.size());
    std::vector<std::size_t> left = kernel.functions[i].calls;
    while (!left.empty()) {
      const std::size_t next = left.back();
      left.pop_back();
      if (reached[next]) continue;
      reached[next] = true;
      left.insert(left.end(), kernel.functions[next].calls.begin(), kernel.functions[next].calls.end());
    }
    kernel.functions[i].calls_itself = reached[i];
  }
}

std::optional<std::uint64_t> Parser::address_of_function(std::string_view name) const {
  constexpr std::uint64_t kBegin = 1 << 16, kApart = 16;  // below all that is memory
  const auto found = functions_.find(name);
  if (found == functions_.end()) return std::nullopt;
  return kBegin + kApart * static_cast<std::uint64_t>(std::distance(functions_.begin(), found));
}

/// Among the functions that the kernel may call, which it becomes.
std::size_t Parser::function_number(Kernel& kernel, std::string_view name) {
  auto& functions = kernel.functions;
  const auto found = std::ranges::find(functions, name, &Function::name);
  const auto number = static_cast<std::size_t>(found - functions.begin());
  if (found == functions.end()) {
    functions.emplace_back().name = name;
    functions.back().address = address_of_function(name).value();
  }
  return number;
}

/// A function in the text by its number, one that is not there by -1, or a register that holds the address of
/// any that is there.
Operand Parser::read_callee(Kernel& kernel, KernelBuilder& builder, Instruction& call) {
  const Token name = lexer_.next();
  call.modifiers.push_back(name.text);
  Operand target;
  target.kind = Operand::Kind::label;
  target.value = -1;
  if (functions_.contains(name.text)) {
    const std::size_t number = function_number(kernel, name.text);
    target.value = static_cast<std::int64_t>(number);
    calls_.push_back(number);
  } else if (const auto found = builder.find(name)) {
    target = *found;
    for (const auto& function : functions_) calls_.push_back(function_number(kernel, function.first));
  }
  return target;
}

/// call{.uni} {(result),} function{, (parameters)}{, prototype}: operands are what is called, results and
/// parameters; its name is the last modifier.
void Parser::read_call(Kernel& kernel, KernelBuilder& builder, Instruction& call) {
  const auto list = [&] {
    Operand operand;
    operand.kind = Operand::Kind::vector;
    if (!lexer_.accept("(")) return operand;
    if (!lexer_.peek().is(")")) operand.elements = read_list(builder);
    lexer_.expect(")");
    return operand;
  };
  Operand results = list();
  if (!results.elements.empty()) lexer_.expect(",");
  Operand target = read_callee(kernel, builder, call);
  Operand parameters;
  parameters.kind = Operand::Kind::vector;
  if (lexer_.accept(",")) {
    if (lexer_.peek().is("("))
      parameters = list();
    else
      lexer_.next();                        // a prototype
    if (lexer_.accept(",")) lexer_.next();  // a prototype
  }
  call.operands = {target, results, parameters};
}

}  // namespace tilescope::gpu::emulator::ptx
