// SPDX-License-Identifier: Apache-2.0
// What a kernel's printf prints.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/machine/warp.hpp"

namespace tilescope::gpu::emulator {

/// The text at a generic address, up to its zero or 4096 characters.
std::string text_at(Warp& warp, std::uint64_t address, int lane);

/// The format at an address with the arguments that lie at another, each aligned to its size: ints of 4 or 8
/// bytes, doubles, addresses.
std::string formatted(Warp& warp, int lane, std::uint64_t format, std::uint64_t arguments);

}  // namespace tilescope::gpu::emulator
