// SPDX-License-Identifier: Apache-2.0
#include "emulator/ptx/parser.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "emulator/ptx/names.hpp"

namespace tilescope::gpu::emulator::ptx {
namespace {

// What a kernel may have of each: what PTX allows it, or where that is not said, what this machine can hold.
constexpr std::uint64_t kMostParameterBytes = 32764;
constexpr std::int64_t kMostRegisters = 1 << 19;
constexpr std::int64_t kMostFiles = 1 << 20;
constexpr std::size_t kMostInlined = 64;  // functions in each other
constexpr int kNewestMajorVersion = 9;    // PTX ISA 9.x
constexpr std::int64_t kMostBound = 1024;

}  // namespace

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
  place_ = {};
  inlined_at_.clear();
  around_.clear();
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
  kernel.dynamic_shared_begin = rounded_up(kernel.static_shared_end, align);
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

/// One to three numbers, or none.
std::vector<std::uint32_t> Parser::read_bounds() {
  std::vector<std::uint32_t> bounds;
  if (!begins_number(lexer_.peek().text)) return bounds;
  do {
    bounds.push_back(static_cast<std::uint32_t>(read_integer(1, kMostBound, "a bound of launches")));
  } while (bounds.size() < 3 && lexer_.accept(","));
  return bounds;
}

void Parser::read_launch_bounds(Kernel& kernel) {
  const auto extent = [](const std::vector<std::uint32_t>& bounds) {
    std::array<std::uint32_t, 3> all{1, 1, 1};
    std::copy(bounds.begin(), bounds.end(), all.begin());
    return all;
  };
  while (!lexer_.peek().is("{")) {
    const Token token = lexer_.next();
    const std::vector<std::uint32_t> bounds = read_bounds();
    const bool empty = bounds.empty();
    const auto [x, y, z] = extent(bounds);
    if ((token.is(".maxntid") || token.is(".reqntid")) && !empty) {
      kernel.max_threads = x * y * z;
      if (token.is(".reqntid")) kernel.required_threads = {x, y, z};
    } else if (token.is(".reqnctapercluster") && !empty) {
      kernel.required_cluster = {x, y, z};
    } else if (token.is(".maxclusterrank") && !empty) {
      kernel.max_cluster = x;
    } else if (!token.is(".minnctapersm") && !token.is(".maxnctapersm") && !token.is(".maxnreg") &&
               !token.is(".explicitcluster")) {
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
  } else if (token.is(".pragma") || token.is(".callprototype")) {
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

/// In a statement of inline assembly LLVM counts one line on for each line of the assembly: the first holds.
void Parser::read_place(const Token& directive) {
  if (directive.inline_asm != 0 && directive.inline_asm == placed_asm_)
    return lexer_.skip_line(directive.line);
  placed_asm_ = directive.inline_asm;
  place_ = read_file_and_line();
  inlined_at_.clear();
  while (lexer_.peek().line == directive.line && !lexer_.peek().text.empty()) {
    if (!lexer_.next().is("inlined_at")) continue;
    const SourcePlace caller = read_file_and_line();
    inlined_at_ = {caller};
    const std::vector<SourcePlace>& further = around_[caller];
    if (further.size() < kMostInlined) inlined_at_.insert(inlined_at_.end(), further.begin(), further.end());
  }
  around_[place_] = inlined_at_;
}

void Parser::require_known_version(const Token& version) const {
  const int major = static_cast<int>(std::strtol(std::string(version.text).c_str(), nullptr, 10));
  if (major > kNewestMajorVersion) {
    lexer_.fail("PTX of a version newer than " + std::to_string(kNewestMajorVersion) +
                    ".x, the newest that is known,",
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

Module parse(std::string_view text) {
  Module module;
  module.source = std::make_shared<const std::string>(text);
  Parser(module, *module.source).read_module();
  return module;
}

}  // namespace tilescope::gpu::emulator::ptx
