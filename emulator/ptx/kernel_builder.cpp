// SPDX-License-Identifier: Apache-2.0
#include "emulator/ptx/kernel_builder.hpp"

#include <algorithm>
#include <charconv>

#include "emulator/ptx/names.hpp"

namespace tilescope::gpu::emulator::ptx {
namespace {

constexpr std::uint32_t kRegisterAlign = 64;           // a cache line, which whole vectors fit
constexpr std::uint64_t kMostRegisterBytes = 1 << 28;  // of a warp

std::uint32_t round_up(std::uint32_t value, std::uint32_t align) {
  return (value + align - 1) / align * align;
}

/// "%f12" as "%f" and 12
std::pair<std::string_view, std::optional<std::uint32_t>> split_number(std::string_view name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return {name, std::nullopt};
  return {name.substr(0, digits), number};
}

}  // namespace

KernelBuilder::KernelBuilder(Kernel& kernel, const Lexer& lexer)
    : kernel_(kernel), lexer_(lexer), next_register_(round_up(special_bytes(), kRegisterAlign)) {
  open_block();
}

void KernelBuilder::close_block() {
  Block block = std::move(blocks_.back());
  blocks_.pop_back();
  for (const Reference& reference : block.references) {
    if (const auto label = block.labels.find(reference.name.text); label != block.labels.end()) {
      kernel_.instructions[reference.instruction].operands[reference.operand].offset =
          static_cast<std::uint32_t>(label->second);
    } else if (!blocks_.empty()) {
      blocks_.back().references.push_back(reference);
    } else {
      kernel_.instructions[reference.instruction].unknown =
          lexer_.failure("no such register, variable or label", reference.name);
    }
  }
  if (!blocks_.empty()) next_register_ = block.registers_before;
}

void KernelBuilder::declare_registers(std::string_view name, Type type, std::optional<std::uint32_t> count) {
  const int bytes = type == Type::pred ? 0 : std::max(bytes_of(type), 2);
  if (bytes > 8) throw std::runtime_error("registers of 128 bits are not known");
  const std::uint32_t stride = bytes == 0 ? kRegisterAlign : static_cast<std::uint32_t>(bytes) * kLanes;
  auto& named = count ? blocks_.back().ranges : blocks_.back().registers;
  named[name] = {next_register_, stride, count.value_or(1), static_cast<std::uint8_t>(bytes)};
  if (function_)
    function_->registers.push_back({next_register_, count.value_or(1), static_cast<std::uint8_t>(bytes)});
  const std::uint64_t end = next_register_ + std::uint64_t{stride} * count.value_or(1);
  if (end > kMostRegisterBytes)
    throw std::runtime_error("a kernel with more registers than fit 256 MiB a warp");
  next_register_ = static_cast<std::uint32_t>(end);
  kernel_.register_bytes = std::max(kernel_.register_bytes, next_register_);
}

void KernelBuilder::declare_variable(const Variable& variable) {
  blocks_.back().variables.emplace(variable.name, variable);
}

void KernelBuilder::declare_label(std::string_view name) {
  blocks_.back().labels[name] = kernel_.instructions.size();
}

std::optional<Operand> KernelBuilder::find_register(std::string_view name) const {
  const auto [prefix, number] = split_number(name);
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const auto single = block->registers.find(name);
    const auto range = number ? block->ranges.find(prefix) : block->ranges.end();
    Operand operand;
    operand.kind = Operand::Kind::reg;
    if (single != block->registers.end()) {
      operand.offset = single->second.offset;
      operand.bytes = single->second.bytes;
      return operand;
    }
    if (range != block->ranges.end() && *number < range->second.count) {
      operand.offset = range->second.offset + *number * range->second.stride;
      operand.bytes = range->second.bytes;
      return operand;
    }
  }
  return std::nullopt;
}

std::optional<Operand> KernelBuilder::find_special(std::string_view name) {
  if (name.empty() || name[0] != '%') return std::nullopt;
  name.remove_prefix(1);
  Operand operand;
  if (const auto clock = clock_of(name)) {
    operand.kind = Operand::Kind::clock;
    operand.value = static_cast<std::int64_t>(*clock);
    return operand;
  }
  const auto offset = special_offset(name);
  if (!offset) return std::nullopt;
  auto& specials = kernel_.specials;
  if (std::ranges::none_of(specials, [&](const auto& special) { return special.name == name; }))
    specials.push_back({std::string(name), *offset});
  operand.kind = Operand::Kind::reg;
  operand.bytes = 4;
  operand.offset = *offset;
  return operand;
}

std::optional<Operand> KernelBuilder::find(const Token& token) {
  if (const auto found = find_register(token.text)) return found;
  if (const auto found = find_special(token.text)) return found;
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    if (const auto found = block->variables.find(token.text); found != block->variables.end()) {
      const Variable& variable = found->second;
      if (variable.of_call) return constant(static_cast<std::int64_t>(kCallParameters + variable.offset));
      return constant(variable.data
                          ? static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(variable.data.get()))
                          : static_cast<std::int64_t>(variable.offset));
    }
  }
  return std::nullopt;
}

Operand KernelBuilder::constant(std::int64_t value) {
  const auto [place, is_new] =
      constants_.try_emplace(value, static_cast<std::uint32_t>(kernel_.constants.size() * sizeof(Constant)));
  if (is_new) {
    Constant& lanes = kernel_.constants.emplace_back();
    lanes.half.fill(static_cast<std::uint16_t>(value));
    lanes.word.fill(static_cast<std::uint32_t>(value));
    lanes.pair.fill(static_cast<std::uint64_t>(value));
  }
  Operand operand;
  operand.kind = Operand::Kind::constant;
  operand.bytes = 8;
  operand.offset = place->second;
  operand.value = value;
  return operand;
}

void KernelBuilder::refer_to_label(const Token& name, std::size_t operand) {
  blocks_.back().references.push_back({name, kernel_.instructions.size(), operand});
}

void KernelBuilder::forget_references() {
  std::erase_if(blocks_.back().references, [&](const Reference& reference) {
    return reference.instruction == kernel_.instructions.size();
  });
}

void KernelBuilder::add(Instruction instruction) { kernel_.instructions.push_back(std::move(instruction)); }

void KernelBuilder::begin_function(Function& function) {
  next_register_ = round_up(kernel_.register_bytes, kRegisterAlign);
  function_ = &function;
  open_block();
}
void KernelBuilder::end_function() {
  close_block();
  function_ = nullptr;
}

void KernelBuilder::finish() {
  while (!blocks_.empty()) close_block();
}

}  // namespace tilescope::gpu::emulator::ptx
