// SPDX-License-Identifier: Apache-2.0
// The ways in which attention kernels are made, as tile programs: what an unknown kernel is held against.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "analysis/model/counts/closed_form.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Block sizes that are tried for both sides of a tile.
inline constexpr int kCandidateBlocks[] = {16, 32, 64, 80, 96, 112, 128, 160, 176, 192, 224, 256};

/// One launch as it could have been made. Tiles of one family and convention differ in nothing but their
/// size.
struct CandidateProgram {
  std::string name;               // "forward", "backward, dQ reduced"
  std::string convention;         // what it does beside the papers' algorithm, "no lse stored"; may be empty
  TileShape tile;                 // {0, 0} for a pass that touches each element once
  std::int64_t num_ctas = 0;      // of a grid with one CTA a tile; 0 where the tile is arbitrary
  ReadWriteBytes bytes;           // at SM<->L2, reductions counted as written
  std::int64_t reduce_bytes = 0;  // part of bytes.write_bytes
};

/// Every candidate of the directions: FlashAttention-2's passes under the conventions of the kernels in use
/// (Q loaded once or at each step, lse stored or not, delta with or without the zeroing of the dQ sums, dK
/// and dV by query head or by key/value head, dQ reduced or in a pass of its own, dK/dV and dQ in one
/// launch), FlashAttention-1, and the copies and fills around them.
/// Multicast needs no candidate of its own: the SMs' counter has each byte at every CTA that receives it.
/// @throws BadInput on an invalid problem, or where a count would overflow
std::vector<CandidateProgram> candidate_programs(const AttentionProblem& problem,
                                                 std::span<const Direction> directions);

}  // namespace tilescope
