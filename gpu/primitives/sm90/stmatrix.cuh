// SPDX-License-Identifier: Apache-2.0
// Stores 8 x 8 blocks of 16-bit elements from accumulator order.
#pragma once

#include <cstdint>

namespace tilescope::gpu::sm90 {

/// Four blocks. Lane l gives the address of row l % 8 of block l / 8: stored_row() of fragments.hpp.
__device__ __forceinline__ void store_blocks(std::uint32_t address, std::uint32_t a, std::uint32_t b,
                                             std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a),
               "r"(b), "r"(c), "r"(d)
               : "memory");
}

/// The same of blocks that are to lie transposed: row l % 8 of a block takes the block's column.
__device__ __forceinline__ void store_blocks_transposed(std::uint32_t address, std::uint32_t a,
                                                        std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

}  // namespace tilescope::gpu::sm90
