// SPDX-License-Identifier: Apache-2.0
// What the tensors of passes take.
#pragma once

#include <cstdint>
#include <span>

#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Size of all tensors that these passes touch, each counted once. [bytes]
std::int64_t tensor_bytes(std::span<const TileProgram> programs);

/// What the tensors of a direction's passes take; backward: with those of the forward passes before it.
/// [bytes]
std::int64_t tensor_bytes(const Kernel& kernel, const AttentionProblem& problem, Direction direction,
                          const ProgramOptions& options);

}  // namespace tilescope
