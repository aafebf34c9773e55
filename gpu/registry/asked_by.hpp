// SPDX-License-Identifier: Apache-2.0
// What more than their bytes crosses for tiles that several kernels load in the same way, for their rows.
#pragma once

#include <initializer_list>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// LSE of the splits' results, of which the pass that combines asks for a q tile's at once.
inline std::vector<Boxes> combined_lse(const TileProgram& combine) {
  const int rows = combine.tile.block_m;
  return {{.tensor = TensorName::lse_partial,
           .rows = rows,
           .panel_bytes = 4 * rows,
           .asked_by = AskedBy::pieces}};
}

/// Rows of one number a query that a warp asks for at once, 32 of them.
inline Boxes warp_piece(TensorName tensor) {
  constexpr int kRows = 32;
  return {.tensor = tensor, .rows = kRows, .panel_bytes = 4 * kRows, .asked_by = AskedBy::pieces};
}

/// The same, or four of them a copy of 16 bytes where each head's begin there.
inline Boxes copies_or_piece(const AttentionProblem& problem, TensorName tensor) {
  if (problem.seqlen_q % 4 != 0) return warp_piece(tensor);
  return {.tensor = tensor, .rows = 4, .panel_bytes = 16, .asked_by = AskedBy::copies};
}

/// The same of a kernel that looks where each tile of them begins.
inline Boxes copies_or_pieces(const AttentionProblem& problem, TensorName tensor) {
  Boxes numbers = copies_or_piece(problem, tensor);
  if (problem.seqlen_q % 4 != 0) numbers.asked_by = AskedBy::copies_or_pieces;
  return numbers;
}

/// Tiles that gpu/primitives/sm80/tile_copy.cuh loads.
/// @return nothing where rows are whole sectors, or no multiples of 16 bytes, which single loads bring, or
///   where not all are loaded
inline std::vector<Boxes> by_copies(const TileProgram& program, std::initializer_list<TensorName> tensors) {
  const AttentionProblem& problem = program.problem;
  constexpr int kCopiedBytes = 16;
  const auto row_bytes = [&](std::int64_t columns) { return element_bytes(problem.dtype) * columns; };
  const bool copied =
      row_bytes(problem.head_dim) % kCopiedBytes == 0 && row_bytes(problem.value_dim()) % kCopiedBytes == 0;
  std::vector<Boxes> all;
  if (!copied || !problem.key_lengths.empty() || problem.page_size > 0) return all;
  for (const TensorName tensor : tensors) {
    if (row_bytes(tensor_extent(problem, tensor).cols) % kSectorBytes == 0) continue;
    all.push_back({.tensor = tensor,
                   .rows = 1,
                   .panel_bytes = static_cast<int>(kSectorBytes),
                   .asked_by = AskedBy::copies});
  }
  return all;
}

/// N x N matrices, whose rows begin at sectors in device memory.
/// @return nothing where they fill them
inline std::vector<Boxes> padded_matrices(const AttentionProblem& problem) {
  using enum TensorName;
  std::vector<Boxes> all;
  if (element_bytes(problem.dtype) * problem.seqlen_k % kSectorBytes == 0) return all;
  for (const TensorName matrix : {scores, probs, dprobs, dscores}) {
    all.push_back({.tensor = matrix,
                   .rows = 1,
                   .panel_bytes = static_cast<int>(kSectorBytes),
                   .asked_by = AskedBy::padded_rows});
  }
  return all;
}

}  // namespace tilescope
