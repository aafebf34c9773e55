// SPDX-License-Identifier: Apache-2.0
// Conversions to floating-point types that need a rounding other than the host's: directed ones, and those to
// halves from whole numbers and fp64, which would round twice.
#pragma once

#include "emulator/machine/handlers.hpp"

namespace tilescope::gpu::emulator {

/// Whether a cvt is one of these.
bool needs_own_rounding(const ptx::Instruction& instruction);
/// Its handler, of one number or of a pair of fp32 numbers. @throws std::runtime_error for an unknown form
Handler select_own_rounding(const ptx::Instruction& instruction);

}  // namespace tilescope::gpu::emulator
