// SPDX-License-Identifier: Apache-2.0
// Names that PTX itself gives: of types and of special registers.
#pragma once

#include <optional>
#include <string_view>

#include "emulator/ptx/module.hpp"

namespace tilescope::gpu::emulator::ptx {

std::optional<Type> type_of(std::string_view name);
std::string_view name_of(Type type);

/// Where a special register that stays the same lies in a warp's registers: those of all kernels begin with
/// them.
std::optional<std::uint32_t> special_offset(std::string_view name);
std::optional<Clock> clock_of(std::string_view name);
/// Bytes of all special registers together.
std::uint32_t special_bytes();

}  // namespace tilescope::gpu::emulator::ptx
