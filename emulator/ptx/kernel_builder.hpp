// SPDX-License-Identifier: Apache-2.0
// A kernel as it is read: which names mean what where, and where registers and constants lie.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "emulator/ptx/lexer.hpp"
#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator::ptx {

class KernelBuilder {
 public:
  KernelBuilder(Kernel& kernel, const Lexer& lexer);

  /// `{` and `}`. Registers of a block end with it and leave their place to the next block's.
  void open_block() { blocks_.push_back({{}, {}, {}, {}, {}, next_register_}); }
  void close_block();

  /// `.reg .f32 %f<5>` declares count = 5 registers, `.reg .f32 x` one without a number.
  void declare_registers(std::string_view name, Type type, std::optional<std::uint32_t> count);
  void declare_variable(const Variable& variable);
  void declare_label(std::string_view name);

  /// A register, a special register, or the address of a variable; none where no such name was declared.
  std::optional<Operand> find(const Token& token);
  Operand constant(std::int64_t value);
  /// Marks operand `operand` of the instruction that will be added next as a branch to a label that may come
  /// later.
  void refer_to_label(const Token& name, std::size_t operand);
  void add(Instruction instruction);
  /// The instruction that was being read is not known: branches that it marked are none.
  void forget_references();
  /// Variables of the module are known to functions too. A function's registers are no one else's.
  void declare_module_variable(const Variable& variable) {
    blocks_.front().variables.emplace(variable.name, variable);
  }
  void begin_function(Function& function);
  void end_function();
  /// Ends the kernel.
  void finish();

 private:
  struct Registers {
    std::uint32_t offset = 0, stride = 0, count = 0;
    std::uint8_t bytes = 0;
  };
  struct Reference {
    Token name;
    std::size_t instruction = 0, operand = 0;
  };
  struct Block {
    std::map<std::string_view, Registers> registers, ranges;  // `a` and `a<2>` may stand side by side
    std::map<std::string, Variable, std::less<>> variables;
    std::map<std::string_view, std::size_t> labels;
    std::vector<Reference> references;
    std::uint32_t registers_before = 0;
  };

  std::optional<Operand> find_register(std::string_view name) const;
  std::optional<Operand> find_special(std::string_view name);

  Kernel& kernel_;
  const Lexer& lexer_;
  std::vector<Block> blocks_;
  std::uint32_t next_register_ = 0;
  Function* function_ = nullptr;                               // that is read
  std::unordered_map<std::int64_t, std::uint32_t> constants_;  // by value, their place
};

}  // namespace tilescope::gpu::emulator::ptx
