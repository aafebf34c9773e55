// SPDX-License-Identifier: Apache-2.0
// Products and transposes of fp32 tiles.
#pragma once

#include <cstddef>

#include "cpu_ref/primitives/tile_math.hpp"

namespace tilescope {

/// c (rows, cols) = or += a (rows, depth) * b (depth, cols). Sums over depth run in order, in fp32.
/// @param b, c padded rows
void tile_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                 std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate);

/// out (cols, padded(rows)) = factor * transpose of in (rows, cols), padded with zeros.
void transpose_tile(const float* in, std::ptrdiff_t in_stride, int rows, int cols, float factor, float* out,
                    std::ptrdiff_t out_stride);

}  // namespace tilescope
