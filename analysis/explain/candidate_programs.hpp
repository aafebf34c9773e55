// SPDX-License-Identifier: Apache-2.0
// The ways in which attention kernels are made, as tile programs: what an unknown kernel is held against.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "analysis/model/counts/closed_form.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Block sizes that are tried for both sides of a tile.
inline constexpr int kCandidateBlocks[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256};

/// What a CTA has on chip. [bytes]
struct OnChip {
  std::int64_t kept = 0;      // tiles that stay while others are streamed
  std::int64_t streamed = 0;  // one of each tile that is streamed
  std::int64_t largest = 0;   // of the streamed tiles
  std::int64_t scores = 0;    // a tile of scores in fp32
  std::int64_t sums = 0;      // results in fp32 that grow from tile to tile
  bool in_slices = false;     // operands come in slices of head_dim: no tile need be there whole
};

/// One launch as it could have been made. Tiles of one family and convention differ in nothing but their
/// size.
struct CandidateProgram {
  std::string name;               // "forward", "backward, dQ reduced"
  std::string convention;         // what it does beside the papers' algorithm, "no lse stored"; may be empty
  TileShape tile;                 // {0, 0} for a pass that touches each element once
  std::int64_t num_ctas = 0;      // of a grid with one CTA a tile; 0 where the tile is arbitrary
  std::int64_t blocks = 0;        // of them, those of one head
  ReadWriteBytes bytes;           // at SM<->L2, reductions counted as written
  std::int64_t reduce_bytes = 0;  // part of bytes.write_bytes
  std::int64_t filled_bytes = 0;  // part of bytes.read_bytes: zeros beyond the tensors
  ReadWriteBytes must = {};       // each operand once
  OnChip on_chip = {};
  Direction direction = Direction::forward;
  std::int64_t threads = 0;  // of a CTA, where its bytes follow from them; 0: any
  bool copy_engine = false;  // loads by boxes, which chips before Hopper have no engine for
  /// Part of what loads ask for is asked for again, and L1 serves it if it still has it: all that they ask
  /// for, where bytes.read_bytes has each sector of a CTA once; 0: they ask for nothing again.
  std::int64_t asked_bytes = 0;
  /// Part of bytes.read_bytes that comes through L1, where the rest is known to go around it.
  std::optional<std::int64_t> through_l1 = std::nullopt;
  std::string library = {};  // stands in the names of kernels made so, in lower case; empty: in any or none
  bool somebodys = false;    // of a text, and not of this file: it goes by no name
  std::vector<TileProgram> parts = {};  // what it was made from, the one that its grid belongs to first

  bool tiled() const { return tile.block_m > 0; }
};

/// Every candidate of the directions: FlashAttention-2's passes under the conventions of the kernels in use,
/// FlashAttention-1, and the passes around them. The files *_candidates.cpp list the conventions.
/// Multicast needs no candidate of its own: the SMs' counter has each byte at every CTA that receives it.
/// @param splits numbers of CTAs among which the keys may have been divided
/// @throws BadInput on an invalid problem, or where a count would overflow
std::vector<CandidateProgram> candidate_programs(const AttentionProblem& problem,
                                                 std::span<const Direction> directions,
                                                 std::span<const int> splits = {});

/// A program of somebody's own as a candidate.
CandidateProgram candidate_of(const std::string& name, Direction direction, const TileProgram& program);

}  // namespace tilescope
