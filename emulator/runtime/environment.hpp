// SPDX-License-Identifier: Apache-2.0
// What the environment asks of the emulated device: variables named TILESCOPE_EMULATED_*.
#pragma once

#include <concepts>
#include <cstdlib>

namespace tilescope::gpu::emulator {

/// The whole number in a variable, decimal or 0x..., or `otherwise` where it is not set.
template <std::integral Number>
Number from_environment(const char* name, Number otherwise) {
  const char* const text = std::getenv(name);
  return text ? static_cast<Number>(std::strtoull(text, nullptr, 0)) : otherwise;
}

}  // namespace tilescope::gpu::emulator
