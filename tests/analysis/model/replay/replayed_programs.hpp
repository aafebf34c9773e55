// SPDX-License-Identifier: Apache-2.0
// Programs for tests of replays.
#pragma once

#include "cpu_ref/schedule/tile_program.hpp"
#include "tests/random_problems.hpp"

namespace tilescope::testing {

inline ProgramOptions random_options(ProblemGenerator& random, TileShape tile) {
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.order = static_cast<TileOrder>(random.between(0, 2));
  options.scan = static_cast<Scan>(random.between(0, 2));
  options.swizzled_heads = random.between(1, 3);
  options.ctas_per_wave = random.between(1, 5);
  return options;
}

/// One head of flash2 forward, 16-bit, N a multiple of both tile sides.
struct OneHead {
  static constexpr TileShape kTile{16, 8};
  AttentionProblem problem;
  std::int64_t q_bytes, kv_bytes;
  int q_tiles;

  OneHead(int q_tiles_, int kv_tiles) : q_tiles(q_tiles_) {
    problem.head_dim = 32;
    problem.dtype = ElementType::fp16;
    problem.seqlen_q = q_tiles * kTile.block_m;
    problem.seqlen_k = kv_tiles * kTile.block_n;
    q_bytes = problem.seqlen_q * problem.head_dim * 2;
    kv_bytes = 2 * problem.seqlen_k * problem.head_dim * 2;
  }
  TileProgram forward(Scan scan) const {
    ProgramOptions options = ProgramOptions::with_tile(kTile);
    options.scan = scan;
    return build_programs(Algorithm::flash2, Direction::forward, problem, options).front();
  }
};

}  // namespace tilescope::testing
