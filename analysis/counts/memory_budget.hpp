// SPDX-License-Identifier: Apache-2.0
// Finding out before a long allocation whether the memory is there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Memory that new allocations can have without swapping: what the kernel reports as available, and no more
/// than the limit of this process's control group. Nothing where the system does not say. [bytes]
std::optional<std::int64_t> available_memory_bytes();

/// @throws MachineLacks naming both figures if `bytes` are more than there are
void require_memory(std::int64_t bytes, const std::string& purpose);

/// Size of all tensors that these passes touch, each counted once. [bytes]
std::int64_t tensor_bytes(std::span<const TileProgram> programs);

}  // namespace tilescope
