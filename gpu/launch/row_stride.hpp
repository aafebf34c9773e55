// SPDX-License-Identifier: Apache-2.0
// How far apart rows may lie in device memory. The tensor cores' kernels find a thread's rows within a tile
// with 32-bit products (gpu/primitives/sm80/tile_copy.cuh): 64-bit ones would cost the forward pass registers
// that it spills. Everything above a tile is counted in 64 bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "common/errors.hpp"
#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

inline constexpr int kMostTileRows = 256;
/// Rows of a tile times this, and the last row's columns, fit an int. [elements]
inline constexpr std::int64_t kMaxRowStride = (std::numeric_limits<int>::max() - kMaxHeadDim) / kMostTileRows;
// Rows of one head side by side: every problem that validate() lets through.
static_assert(kMaxHeadDim <= kMaxRowStride);

/// @param tensor  its name
/// @throws BadInput where its rows lie too far apart
inline void require_row_stride(const std::string& tensor, std::int64_t row_stride) {
  if (row_stride <= kMaxRowStride) return;
  throw BadInput("row stride of " + tensor, std::to_string(row_stride),
                 "rows may lie at most " + std::to_string(kMaxRowStride) +
                     " elements apart; a contiguous copy has them nearer");
}

/// Whether rows of all heads side by side, (batch, rows, heads, head_dim), lie near enough.
inline bool heads_side_by_side_fit(const AttentionProblem& problem) {
  return problem.heads <= kMaxRowStride / std::max(problem.head_dim, problem.value_dim());
}

}  // namespace tilescope
