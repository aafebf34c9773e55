// SPDX-License-Identifier: Apache-2.0
// How many accesses to global memory stand in code: in PTX, whose bytes are counted, and in what ptxas made
// of it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator {

/// Loads, stores, atomics, copies of threads into shared memory, copies of the engine.
using StaticAccesses = std::array<unsigned, 5>;

/// Nothing where functions, or matrices (wmma), stand for more than one access each.
std::optional<StaticAccesses> accesses_in_ptx(const ptx::Kernel& kernel);

/// Of a kernel in what `cuobjdump -sass` and `nvdisasm -c` print; nothing where it is not there.
std::optional<StaticAccesses> accesses_in_sass(std::string_view sass, std::string_view kernel);

/// "ptxas makes 8 loads and 7 stores of 2 loads and 1 store ..."; nothing where there is no difference.
std::optional<std::string> difference(const StaticAccesses& ptx, const StaticAccesses& sass);

}  // namespace tilescope::gpu::emulator
