// SPDX-License-Identifier: Apache-2.0
// Halves for the families that have forms of their own for them.
#pragma once

#include <cstdint>

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

Execution select_half_multiply_add(const ptx::Instruction& instruction);
/// tanh and ex2.
Execution select_half_function(const ptx::Instruction& instruction);

/// The number that a half of this type is, and the sum of two, rounded once.
float half_value(ptx::Type type, std::uint16_t bits);
std::uint16_t half_sum(ptx::Type type, std::uint16_t a, std::uint16_t b);

}  // namespace tilescope::gpu::emulator
