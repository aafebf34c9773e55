// SPDX-License-Identifier: Apache-2.0
// The grammar of PTX, as far as nvcc, Triton and inline assembly use it: parser.cpp reads modules and
// kernels, parser_variables.cpp variables, parser_instructions.cpp instructions, parser_functions.cpp
// functions and calls.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/ptx/kernel_builder.hpp"
#include "emulator/ptx/lexer.hpp"

namespace tilescope::gpu::emulator::ptx {

template <class Integer>
Integer rounded_up(Integer value, Integer align) {
  return (value + align - 1) / align * align;
}

inline constexpr std::uint64_t kMostLocalBytes = 512 << 10;  // that this machine can hold

inline bool begins_number(std::string_view word) { return !word.empty() && word[0] >= '0' && word[0] <= '9'; }

/// Behind the name of a function: whether its body follows.
struct SkippedFunction {
  Token name;
  bool has_body = false;
};

/// Takes what stands from behind `.func` to the begin of the body, which it takes, or to the end of a
/// declaration.
SkippedFunction skip_function(Lexer& lexer);
/// Behind a `{`: takes everything up to the `}` that closes it.
void skip_block(Lexer& lexer);

class Parser {
 public:
  Parser(Module& module, std::string_view text) : module_(module), lexer_(text) { find_functions(text); }
  void read_module();

 private:
  void read_kernel();
  void read_parameters(Kernel& kernel, KernelBuilder& builder);
  void read_launch_bounds(Kernel& kernel);
  std::vector<std::uint32_t> read_bounds();
  void read_body(Kernel& kernel, KernelBuilder& builder);
  void find_functions(std::string_view text);
  void read_functions(Kernel& kernel, KernelBuilder& builder);
  std::vector<Variable> read_call_parameters(Kernel& kernel, KernelBuilder& builder);
  void read_call(Kernel& kernel, KernelBuilder& builder, Instruction& call);
  Operand read_callee(Kernel& kernel, KernelBuilder& builder, Instruction& call);
  std::size_t function_number(Kernel& kernel, std::string_view name);
  /// Of a function with a body; nothing for another name.
  std::optional<std::uint64_t> address_of_function(std::string_view name) const;
  /// `.branchtargets a, b, c;` behind its label.
  void read_branch_targets(std::string_view label);
  /// brx.idx: operands are the index and all targets.
  void read_indexed_branch(KernelBuilder& builder, Instruction& branch);
  void read_directive(Kernel& kernel, KernelBuilder& builder);
  void read_registers(KernelBuilder& builder);
  void read_instruction(Kernel& kernel, KernelBuilder& builder);
  void read_operands(Kernel& kernel, KernelBuilder& builder, Instruction& instruction);
  bool skip_operands();
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
  /// A number, or the address of a variable or a function.
  std::int64_t read_initial_value();
  /// @throws std::runtime_error unless it is within [least, most]
  std::int64_t read_integer(std::int64_t least, std::int64_t most, const char* what);
  std::int64_t number(const Token& token) const;

  Module& module_;
  Lexer lexer_;
  std::vector<Variable> shared_;                                   // of the module
  std::map<std::string, Lexer, std::less<>> functions_;            // where their results or names begin
  std::vector<std::size_t> calls_;                                 // of the function that is read
  std::map<std::string_view, std::vector<Token>> branch_targets_;  // by label, of the body that is read
  SourcePlace place_;
  std::vector<SourcePlace> inlined_at_;
  int placed_asm_ = 0;  // the statement of inline assembly whose place was told last
  std::map<SourcePlace, std::vector<SourcePlace>> around_;  // what was told last: .loc names one step
};

}  // namespace tilescope::gpu::emulator::ptx
