// SPDX-License-Identifier: Apache-2.0
// Products of bf16 tiles by the processor's dot products of pairs (AVX-512 BF16), which are exact and summed
// in fp32. A word of such a tile, as wide as an fp32 number, holds two numbers that follow each other along
// the depth; where the depth is odd, the last one is zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu_ref/primitives/tile_math.hpp"

namespace tilescope {

constexpr int words_of(int depth) { return (depth + 1) / 2; }

/// Whether this processor has them. Otherwise bf16 is widened to fp32 and multiplied as that.
bool multiplies_bf16_pairs();

/// As tile_matmul(), with a depth of so many words in a and b. Terms below the least normal fp32 number are
/// 0.
void bf16_tile_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                      std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate);

/// words (words_of(rows), cols) = each two rows of values (rows, cols) that bf16 holds.
void pair_float_rows(const float* values, std::ptrdiff_t stride, int rows, int cols, float* words,
                     std::ptrdiff_t words_stride);

/// words (1, cols) = two rows of bf16 numbers. A null row is one of zeros.
void pair_rows(const std::uint16_t* first, const std::uint16_t* second, int cols, float* words);

}  // namespace tilescope
