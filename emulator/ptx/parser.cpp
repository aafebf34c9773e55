// SPDX-License-Identifier: Apache-2.0
// The grammar of PTX, as far as nvcc and inline assembly use it.
#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "emulator/ptx/kernel_builder.hpp"
#include "emulator/ptx/lexer.hpp"
#include "emulator/ptx/names.hpp"

namespace tilescope::gpu::emulator::ptx {
namespace {

template <class Integer>
Integer round_up(Integer value, Integer align) {
  return (value + align - 1) / align * align;
}

// What a kernel may have of each: what PTX allows it, or where that is not said, what this machine can hold.
constexpr std::uint64_t kMostParameterBytes = 32764, kMostLocalBytes = 512 << 10,
                        kMostSharedEnd = kSharedBegin + (227 << 10), kMostVariableBytes = 1ull << 31;
constexpr std::int64_t kMostRegisters = 1 << 19;
constexpr std::int64_t kMostFiles = 1 << 20;
constexpr int kNewestMajorVersion = 9;  // PTX ISA 9.x
constexpr std::int64_t kMostAlign = 1 << 16;

bool begins_number(std::string_view word) { return !word.empty() && word[0] >= '0' && word[0] <= '9'; }

class Parser {
 public:
  Parser(Module& module, std::string_view text) : module_(module), lexer_(text) { find_functions(text); }
  void read_module();

 private:
  void read_kernel();
  void read_parameters(Kernel& kernel, KernelBuilder& builder);
  void read_launch_bounds(Kernel& kernel);
  void read_body(Kernel& kernel, KernelBuilder& builder);
  void find_functions(std::string_view text);
  void read_functions(Kernel& kernel, KernelBuilder& builder);
  std::vector<Variable> read_call_parameters(Kernel& kernel, KernelBuilder& builder);
  void read_call(Kernel& kernel, KernelBuilder& builder, Instruction& call);
  void read_directive(Kernel& kernel, KernelBuilder& builder);
  void read_registers(KernelBuilder& builder);
  void read_instruction(Kernel& kernel, KernelBuilder& builder);
  /// `.file 1 "path"`
  void read_file(const Token& directive);
  /// `.loc 1 12 5` and, of an inlined function, `, function_name f, inlined_at 1 20 3`
  void read_place(const Token& directive);
  SourcePlace read_file_and_line();
  void require_known_version(const Token& version) const;
  Operand read_operand(KernelBuilder& builder, std::size_t index);
  Operand read_simple(KernelBuilder& builder, std::size_t index);
  Operand read_address(KernelBuilder& builder);
  std::vector<Operand> read_list(KernelBuilder& builder);

  /// `.align 8 .b8 name[16]`, after the directive of its space
  Variable read_variable(Space space);
  void read_initial_values(const Variable& variable, int element_bytes);
  void place_shared(Kernel& kernel, Variable& variable);
  /// Places a variable behind the others of its space, which end at `end`.
  void place(Variable& variable, std::uint32_t& end, std::uint64_t most);
  std::int64_t read_integer();
  /// @throws std::runtime_error unless it is within [least, most]
  std::int64_t read_integer(std::int64_t least, std::int64_t most, const char* what);
  std::int64_t number(const Token& token) const;

  Module& module_;
  Lexer lexer_;
  std::vector<Variable> shared_;                         // of the module
  std::map<std::string, Lexer, std::less<>> functions_;  // where their results or names begin
  std::vector<std::size_t> calls_;                       // of the function that is read
  SourcePlace place_, inlined_at_;
};

/// Behind the name of a function: whether its body follows.
struct SkippedFunction {
  Token name;
  bool has_body = false;
};

/// Takes what stands from behind `.func` to the begin of the body, which it takes, or to the end of a
/// declaration.
SkippedFunction skip_function(Lexer& lexer) {
  if (lexer.accept("(")) lexer.skip_past(")");
  SkippedFunction function{lexer.next()};
  while (!lexer.peek().is("{") && !lexer.peek().is(";")) {
    if (lexer.next().text.empty()) lexer.fail("a function without end");
  }
  function.has_body = lexer.next().is("{");
  return function;
}

/// Behind a `{`: takes everything up to the `}` that closes it.
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

/// call{.uni} {(result),} function{, (parameters)}: operands are the function's number, or -1 of one that is
/// not in the text, results and parameters; its name is the last modifier.
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
  const Token name = lexer_.next();
  call.modifiers.push_back(name.text);
  Operand target;
  target.kind = Operand::Kind::label;
  target.value = -1;
  if (functions_.contains(name.text)) {
    auto& functions = kernel.functions;
    const auto found = std::find_if(functions.begin(), functions.end(),
                                    [&](const Function& function) { return function.name == name.text; });
    target.value = found - functions.begin();
    if (found == functions.end()) functions.emplace_back().name = name.text;
    calls_.push_back(static_cast<std::size_t>(target.value));
  }
  Operand parameters;
  parameters.kind = Operand::Kind::vector;
  if (lexer_.accept(",")) parameters = list();
  call.operands = {target, results, parameters};
}

void Parser::read_module() {
  while (!lexer_.peek().text.empty()) {
    const Token token = lexer_.next();
    if (token.is(".version")) {
      require_known_version(lexer_.next());
    } else if (token.is(".address_size")) {
      lexer_.next();
    } else if (token.is(".target")) {
      module_.target = lexer_.next().text;
      while (lexer_.accept(",")) lexer_.next();
    } else if (token.is(".visible") || token.is(".weak") || token.is(".extern") || token.is(".common")) {
    } else if (token.is(".entry")) {
      read_kernel();
    } else if (token.is(".shared")) {
      shared_.push_back(read_variable(Space::shared));
    } else if (token.is(".global")) {
      module_.variables.push_back(read_variable(Space::global));
    } else if (token.is(".const")) {
      module_.variables.push_back(read_variable(Space::constant));
    } else if (token.is(".func")) {
      if (skip_function(lexer_).has_body) skip_block(lexer_);
    } else if (token.is(".file")) {
      read_file(token);
    } else if (token.is(".pragma")) {
      lexer_.skip_line(token.line);
    } else if (token.is(".section")) {
      lexer_.skip_past("}");
    } else {
      lexer_.fail("unknown directive", token);
    }
  }
}

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
      element_bytes = bytes_of(*type);
    } else if (!token.is(".ptr") && !token.is(".global") && !token.is(".shared") && !token.is(".const")) {
      lexer_.fail("unknown attribute of a variable", token);
    }
  }
  variable.align = std::max(variable.align, static_cast<std::uint32_t>(element_bytes));
  variable.name = lexer_.next().text;
  variable.bytes = static_cast<std::uint64_t>(element_bytes);
  while (lexer_.accept("[")) {
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
    const std::int64_t value = read_integer();
    if (at + static_cast<std::uint64_t>(element_bytes) > variable.bytes)
      lexer_.fail("more values than the variable has");
    std::memcpy(variable.data.get() + at, &value, static_cast<std::size_t>(element_bytes));
    at += static_cast<std::uint64_t>(element_bytes);
    while (lexer_.accept("}")) {
    }
  } while (lexer_.accept(","));
}

std::int64_t Parser::number(const Token& token) const {
  std::string_view word = token.text;
  if (word == "WARP_SZ") return kLanes;
  int base = 10;
  const bool is_pattern = word.size() > 2 && word[0] == '0' &&
                          (word[1] == 'f' || word[1] == 'F' || word[1] == 'd' || word[1] == 'D');
  if (is_pattern || word.substr(0, 2) == "0x" || word.substr(0, 2) == "0X") {
    base = 16;
    word.remove_prefix(2);
  }
  if (word.size() > 1 && word.back() == 'U') word.remove_suffix(1);
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  if (error != std::errc() || end != word.data() + word.size()) lexer_.fail("a number expected", token);
  return static_cast<std::int64_t>(value);
}

std::int64_t Parser::read_integer() {
  const bool negative = lexer_.accept("-");
  const std::int64_t value = number(lexer_.next());
  return negative ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value)) : value;
}

std::int64_t Parser::read_integer(std::int64_t least, std::int64_t most, const char* what) {
  const Token token = lexer_.peek();
  const std::int64_t value = read_integer();
  if (value < least || value > most) {
    lexer_.fail(
        std::string(what) + " from " + std::to_string(least) + " to " + std::to_string(most) + " expected",
        token);
  }
  return value;
}

void Parser::read_kernel() {
  place_ = inlined_at_ = {};
  Kernel& kernel = *module_.kernels.emplace_back(std::make_unique<Kernel>());
  kernel.name = lexer_.next().text;
  kernel.static_shared_end = kSharedBegin;
  KernelBuilder builder(kernel, lexer_);
  for (const Variable& variable : module_.variables) builder.declare_module_variable(variable);
  std::vector<Variable> dynamic;
  for (Variable variable : shared_) {
    if (variable.bytes == 0) {
      dynamic.push_back(variable);
      continue;
    }
    place_shared(kernel, variable);
    builder.declare_module_variable(variable);
  }
  builder.open_block();
  if (lexer_.accept("(")) read_parameters(kernel, builder);
  read_launch_bounds(kernel);
  lexer_.expect("{");
  // Dynamic shared memory begins behind the kernel's own variables, which are declared at the begin of its
  // body.
  while (lexer_.peek().is(".reg") || lexer_.peek().is(".shared") || lexer_.peek().is(".local") ||
         lexer_.peek().is(".loc"))
    read_directive(kernel, builder);
  std::uint32_t align = 16;
  for (const Variable& variable : dynamic) align = std::max(align, variable.align);
  kernel.dynamic_shared_begin = round_up(kernel.static_shared_end, align);
  for (Variable& variable : dynamic) {
    variable.offset = kernel.dynamic_shared_begin;
    builder.declare_module_variable(variable);
    kernel.shared.push_back(variable);
  }
  read_body(kernel, builder);
  builder.close_block();
  read_functions(kernel, builder);
  builder.finish();
}

void Parser::place(Variable& variable, std::uint32_t& end, std::uint64_t most) {
  variable.offset = round_up(end, variable.align);
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

void Parser::read_parameters(Kernel& kernel, KernelBuilder& builder) {
  while (!lexer_.accept(")")) {
    lexer_.expect(".param");
    Variable parameter = read_variable(Space::parameter);
    place(parameter, kernel.parameter_bytes, kMostParameterBytes);
    builder.declare_variable(parameter);
    kernel.parameters.push_back(std::move(parameter));
    lexer_.accept(",");
  }
}

void Parser::read_launch_bounds(Kernel& kernel) {
  while (!lexer_.peek().is("{")) {
    const Token token = lexer_.next();
    if (token.is(".blocksareclusters")) continue;
    std::int64_t product = 1;
    if (begins_number(lexer_.peek().text)) {
      do {
        product *= read_integer();
      } while (lexer_.accept(","));
    }
    if (token.is(".maxntid") || token.is(".reqntid")) {
      kernel.max_threads = static_cast<std::uint32_t>(product);
    } else if (!token.is(".minnctapersm") && !token.is(".maxnctapersm") && !token.is(".maxnreg") &&
               !token.is(".explicitcluster") && !token.is(".reqnctapercluster") &&
               !token.is(".maxclusterrank")) {
      lexer_.fail("unknown directive of a kernel", token);
    }
  }
}

void Parser::read_body(Kernel& kernel, KernelBuilder& builder) {
  for (int depth = 1; depth > 0;) {
    if (lexer_.peek().text.empty()) lexer_.fail("a kernel without end");
    if (lexer_.accept("{")) {
      builder.open_block();
      ++depth;
    } else if (lexer_.accept("}")) {
      if (--depth > 0) builder.close_block();
    } else if (lexer_.peek().text[0] == '.') {
      read_directive(kernel, builder);
    } else {
      read_instruction(kernel, builder);
    }
  }
}

void Parser::read_directive(Kernel& kernel, KernelBuilder& builder) {
  const Token token = lexer_.next();
  if (token.is(".reg")) {
    read_registers(builder);
  } else if (token.is(".shared")) {
    if (kernel.dynamic_shared_begin != 0)
      lexer_.fail("a shared variable behind the begin of the body", token);
    Variable variable = read_variable(Space::shared);
    place_shared(kernel, variable);
    builder.declare_variable(variable);
  } else if (token.is(".local")) {
    Variable variable = read_variable(Space::local);
    place(variable, kernel.local_bytes, kMostLocalBytes);
    builder.declare_variable(variable);
  } else if (token.is(".param")) {
    Variable variable = read_variable(Space::parameter);
    lexer_.expect(";");
    variable.of_call = true;
    place(variable, kernel.local_bytes, kMostLocalBytes);
    builder.declare_variable(variable);
  } else if (token.is(".pragma")) {
    lexer_.skip_past(";");
  } else if (token.is(".loc")) {
    read_place(token);
  } else {
    lexer_.fail("unknown directive", token);
  }
}

void Parser::read_file(const Token& directive) {
  const int number = static_cast<int>(read_integer(0, kMostFiles, "the number of a file"));
  std::string_view path = lexer_.next().text;
  if (path.size() >= 2 && path.front() == '"') path = path.substr(1, path.size() - 2);
  module_.files[number] = path;
  lexer_.skip_line(directive.line);
}

SourcePlace Parser::read_file_and_line() {
  SourcePlace place;
  place.file = static_cast<int>(read_integer(0, kMostFiles, "the number of a file"));
  place.line = static_cast<int>(read_integer(0, std::numeric_limits<int>::max(), "a line"));
  return place;
}

void Parser::read_place(const Token& directive) {
  place_ = read_file_and_line();
  inlined_at_ = {};
  while (lexer_.peek().line == directive.line && !lexer_.peek().text.empty()) {
    if (lexer_.next().is("inlined_at")) inlined_at_ = read_file_and_line();
  }
}

void Parser::require_known_version(const Token& version) const {
  const int major = static_cast<int>(std::strtol(std::string(version.text).c_str(), nullptr, 10));
  if (major > kNewestMajorVersion) {
    lexer_.fail("PTX of a version newer than " + std::to_string(kNewestMajorVersion) +
                    ".x, the newest that is known, ",
                version);
  }
}

void Parser::read_registers(KernelBuilder& builder) {
  const Token type_name = lexer_.next();
  const auto type = type_of(type_name.text.substr(type_name.text.empty() ? 0 : 1));
  if (!type) lexer_.fail("unknown type", type_name);
  do {
    const Token name = lexer_.next();
    std::optional<std::uint32_t> count;
    if (lexer_.accept("<")) {
      count = static_cast<std::uint32_t>(read_integer(1, kMostRegisters, "a number of registers"));
      lexer_.expect(">");
    }
    builder.declare_registers(name.text, *type, count);
  } while (lexer_.accept(","));
  lexer_.expect(";");
}

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
  if (opcode.is("call") || opcode.is("call.uni")) {
    read_call(kernel, builder, instruction);
  } else if (!lexer_.peek().is(";")) {
    do {
      instruction.operands.push_back(read_operand(builder, instruction.operands.size()));
    } while (lexer_.accept(","));
  }
  lexer_.expect(";");
  instruction.text = lexer_.text_since(first);
  builder.add(std::move(instruction));
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

}  // namespace

Module parse(std::string_view text) {
  Module module;
  module.source = std::make_shared<const std::string>(text);
  Parser(module, *module.source).read_module();
  return module;
}

}  // namespace tilescope::gpu::emulator::ptx
