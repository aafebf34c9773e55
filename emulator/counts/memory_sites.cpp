// SPDX-License-Identifier: Apache-2.0
#include "emulator/counts/memory_sites.hpp"

#include <algorithm>
#include <map>

namespace tilescope::gpu::emulator {
namespace {

using ptx::Instruction;
using ptx::Operand;

bool names_memory(const Instruction& instruction) {
  return std::ranges::any_of(instruction.operands,
                             [](const Operand& operand) { return operand.kind == Operand::Kind::address; });
}

void count_registers(const Operand& operand, std::map<std::uint32_t, int>& times) {
  if (operand.kind == Operand::Kind::reg) ++times[operand.offset];
  for (const Operand& element : operand.elements) count_registers(element, times);
}

/// How often each register is named, by its place.
std::map<std::uint32_t, int> registers_named(const ptx::Kernel& kernel) {
  std::map<std::uint32_t, int> times;
  for (const Instruction& instruction : kernel.instructions) {
    count_registers(instruction.guard, times);
    for (const Operand& operand : instruction.operands) count_registers(operand, times);
  }
  return times;
}

Route route_of(const Instruction& instruction) {
  if (instruction.opcode.starts_with("cp.async.ca")) return Route::l1;
  if (!instruction.opcode.starts_with("ld")) return Route::l2;
  if (instruction.has("const")) return Route::constant;
  const bool past = instruction.has_any({"cg", "cv", "volatile", "acquire", "relaxed", "mmio"});
  return past ? Route::l2 : Route::l1;
}

}  // namespace

MemorySites::MemorySites(const ptx::Kernel& kernel)
    : kernel_(&kernel), by_instruction_(kernel.instructions.size()) {
  const auto times = registers_named(kernel);
  for (std::size_t i = 0; i < kernel.instructions.size(); ++i) {
    const Instruction& instruction = kernel.instructions[i];
    if (!names_memory(instruction)) continue;
    MemorySite site{static_cast<std::uint32_t>(i), route_of(instruction)};
    std::map<std::uint32_t, int> results;
    if (instruction.opcode.starts_with("atom")) count_registers(instruction.operands[0], results);
    site.reduces = instruction.opcode.starts_with("red") ||
                   (instruction.opcode.starts_with("atom") && !instruction.has("cas") &&
                    !instruction.has("exch") && std::ranges::all_of(results, [&](const auto& result) {
                      return times.at(result.first) == result.second;
                    }));
    by_instruction_[i] = static_cast<std::uint32_t>(sites_.size());
    sites_.push_back(site);
  }
}

}  // namespace tilescope::gpu::emulator
