// SPDX-License-Identifier: Apache-2.0
// What is announced before long work: as many accesses as the program has, and times that pretend no more
// digits.
#include "analysis/model/replay/replay_cost.hpp"

#include <doctest/doctest.h>

namespace tilescope {

TEST_CASE("accesses are counted as the program lists them") {
  const AttentionProblem problem{.heads = 2, .heads_kv = 2, .seqlen_q = 256, .seqlen_k = 256, .head_dim = 64};
  const std::vector<TileProgram> programs =
      build_programs(Algorithm::flash2, Direction::forward, problem, ProgramOptions::with_tile({64, 64}));
  REQUIRE(programs.size() == 1);
  // A block of queries: Q once, K and V of four tiles, O and LSE once.
  CHECK(tile_accesses(programs[0]) == 2 * 4 * (1 + 2 * 4 + 2));
  const std::vector<PlannedPass> passes = {{Direction::forward, programs[0]}};
  CHECK(replay_seconds(passes, false, false, true) == 4 * replay_seconds(passes, false));  // four launches
  CHECK(replay_seconds(passes, false, true, true) == replay_seconds(passes, false, true));
}

TEST_CASE("durations are estimates and read so") {
  CHECK(about_seconds(0.2) == "less than a second");
  CHECK(about_seconds(7.4) == "about 7 s");
  CHECK(about_seconds(56) == "about 60 s");
  CHECK(about_seconds(430) == "about 7 min");
  CHECK(about_seconds(7000) == "about 100 min");
  CHECK(about_seconds(50000) == "about 14 h");
}

}  // namespace tilescope
