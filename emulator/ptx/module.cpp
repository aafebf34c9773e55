// SPDX-License-Identifier: Apache-2.0
#include "emulator/ptx/module.hpp"

#include <algorithm>

namespace tilescope::gpu::emulator::ptx {

int bytes_of(Type type) {
  if (type == Type::pred) return 0;
  if (type < Type::b16) return 1;
  if (type < Type::b32) return 2;
  if (type < Type::b64) return 4;
  return type < Type::b128 ? 8 : 16;
}

bool Instruction::has(std::string_view modifier) const {
  return std::ranges::find(modifiers, modifier) != modifiers.end();
}
bool Instruction::has_any(std::initializer_list<std::string_view> of) const {
  return std::ranges::any_of(of, [&](std::string_view modifier) { return has(modifier); });
}

const Kernel* Module::find(std::string_view name) const {
  const auto found = std::ranges::find_if(kernels, [&](const auto& kernel) { return kernel->name == name; });
  return found == kernels.end() ? nullptr : found->get();
}

}  // namespace tilescope::gpu::emulator::ptx
