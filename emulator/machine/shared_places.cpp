// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/shared_places.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/demangle.hpp"

namespace tilescope::gpu::emulator {
namespace {

/// The variable that holds an offset; dynamic ones reach to the end.
const ptx::Variable* variable_at(const ptx::Kernel& kernel, std::uint32_t offset) {
  const auto found = std::ranges::find_if(kernel.shared, [offset](const ptx::Variable& variable) {
    return offset >= variable.offset && (variable.bytes == 0 || offset < variable.offset + variable.bytes);
  });
  return found == kernel.shared.end() ? nullptr : &*found;
}

}  // namespace

std::string shared_place(const ptx::Kernel* kernel, std::uint32_t offset) {
  std::string place =
      fmt::format("byte {} of shared memory", std::int64_t{offset} - std::int64_t{ptx::kSharedBegin});
  const ptx::Variable* const variable = kernel ? variable_at(*kernel, offset) : nullptr;
  if (!variable) return place;
  const std::string whole = demangle(variable->name);  // "kernel(int*)::tile"
  const std::size_t scope = whole.rfind("::");
  const std::string name = scope == std::string::npos ? whole : whole.substr(scope + 2);
  const std::uint64_t within = offset - variable->offset;
  const auto element = static_cast<std::uint64_t>(ptx::bytes_of(variable->type));
  if (element <= 1)
    return fmt::format("{} (byte {} of {})", place, within, name);  // nvcc's arrays are of bytes
  return variable->bytes == element ? fmt::format("{} ({})", place, name)
                                    : fmt::format("{} ({}[{}])", place, name, within / element);
}

}  // namespace tilescope::gpu::emulator
