// SPDX-License-Identifier: Apache-2.0
// Where wgmma finds an operand in shared memory, from the descriptor's word alone.
// Sources: PTX ISA, "Matrix descriptor format" and "Strides"; CUTLASS states the same as layouts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/primitives/sm90/matrix_descriptor.hpp"

namespace tilescope::gpu::emulator {

using sm90::Major;

inline constexpr int kProductDepthBytes = 32;  // of K, of every instruction
inline constexpr int kChunkBytes = 16;         // what lies together in every layout

/// @throws Fault where the word asks for what this does not know (a base offset)
sm90::MatrixDescriptor decode_descriptor(std::uint64_t word);

/// Reads 16 bytes of shared memory.
using ReadChunk = std::function<void(std::uint32_t address, std::byte* target)>;

/// The rows [first, first + count) of an operand, M or N by K, each kProductDepthBytes long. Rows come in
/// groups of eight.
std::vector<std::byte> gather_operand(std::uint64_t descriptor, Major major, int element_bytes, int first,
                                      int count, const ReadChunk& read);

}  // namespace tilescope::gpu::emulator
