// SPDX-License-Identifier: Apache-2.0
// Every way to run every algorithm, for tests that hold of all passes.
#pragma once

#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"
#include "tests/random_problems.hpp"

namespace tilescope::testing {

struct AlgorithmChoice {
  Algorithm algorithm;
  Direction direction;
  BackwardOrder backward = BackwardOrder::split;
};

inline constexpr AlgorithmChoice kAlgorithmChoices[] = {
    {Algorithm::standard, Direction::forward},
    {Algorithm::standard, Direction::backward},
    {Algorithm::flash1, Direction::forward},
    {Algorithm::flash1, Direction::backward},
    {Algorithm::flash2, Direction::forward},
    {Algorithm::flash2, Direction::backward, BackwardOrder::split},
    {Algorithm::flash2, Direction::backward, BackwardOrder::fused},
    {Algorithm::flash2, Direction::backward, BackwardOrder::q_outer},
};

inline std::vector<TileProgram> programs_of(const AlgorithmChoice& choice, const AttentionProblem& problem,
                                            ProgramOptions options) {
  options.backward = choice.backward;
  if (choice.algorithm != Algorithm::flash2) options.diagonal_slices = 1;      // which alone cuts tiles finer
  if (choice.algorithm != Algorithm::flash2 || options.diagonal_slices > 1) {  // and alone splits and packs
    options.splits = {};
    options.pack_gqa = false;
  }
  return build_programs(choice.algorithm, choice.direction, problem, options);
}

/// Any policy of splitting keys, and packed heads or not.
inline void draw_splits(ProgramOptions& options, TileShape tile, ProblemGenerator& random) {
  using enum SplitPolicy::Kind;
  const SplitPolicy policies[] = {{},
                                  {number, random.between(1, 9)},
                                  {fixed, tile.block_n * random.between(1, 4)},
                                  {automatic, random.between(1, 60)}};
  options.splits = policies[random.between(0, 3)];
  options.pack_gqa = random.chance(0.5);
}

/// Boxes of whole or half tiles load what they can, or copies, or pieces; boxes store results. Rows must be
/// multiples of 16 bytes, without padding; those of N x N matrices may begin at sectors.
inline void draw_boxes(TileProgram& program, ProblemGenerator& random) {
  using enum TensorName;
  const TileShape tile = program.access_tile();
  for (const TensorName tensor : {q, k, v, dout}) {
    const bool by_m = tensor_extent(program.problem, tensor).indexing == TileIndexing::m;
    int rows = by_m ? tile.block_m / program.interleaved_heads() : tile.block_n;
    if (rows % 2 == 0 && random.chance(0.5)) rows /= 2;
    program.boxes.push_back({tensor, rows, random.chance(0.5) ? 128 : 64, random.chance(0.4)});
    if (random.chance(0.5)) continue;
    Boxes& boxes = program.boxes.back();
    boxes.asked_by = random.chance(0.5) ? AskedBy::copies : AskedBy::pieces;
    boxes.panel_bytes = 16 * random.between(1, 40);
    if (boxes.asked_by == AskedBy::copies) boxes.panel_bytes = static_cast<int>(kSectorBytes);
  }
  for (const TensorName tensor : {out, dk, dv}) {
    if (random.chance(0.5))
      program.boxes.push_back(
          {tensor, tile.block_m, random.chance(0.5) ? 128 : 64, false, AskedBy::stored_boxes});
  }
  for (const TensorName matrix : {scores, probs, dprobs, dscores}) {
    const bool in_sectors = tile.block_n * element_bytes(program.problem.dtype) % kSectorBytes == 0;
    if (in_sectors && random.chance(0.7))
      program.boxes.push_back({matrix, 1, static_cast<int>(kSectorBytes), false, AskedBy::padded_rows});
  }
  if (program.name == PassName::combine)
    program.boxes.push_back({lse_partial, tile.block_m, 4 * tile.block_m, false, AskedBy::pieces});
  const bool in_copies = program.problem.seqlen_q % 4 == 0;  // each head's numbers begin at 16 bytes
  for (const TensorName numbers : {lse, delta, row_max, row_sum}) {
    constexpr AskedBy kWays[] = {AskedBy::copies, AskedBy::pieces, AskedBy::aligned_copies,
                                 AskedBy::aligned_runs};
    if (random.chance(0.7))
      program.boxes.push_back(
          {numbers, 4, 32 * random.between(1, 4), false, kWays[random.between(in_copies ? 0 : 1, 3)]});
  }
}

}  // namespace tilescope::testing
