// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/choose_splits.hpp"

#include <algorithm>

namespace tilescope {

int fewest_splits(int visited_tiles, int most, const SplitTime& time) {
  constexpr double kNearBest = 1.02;
  double best = time(1);
  for (int splits = 2; splits <= most; ++splits) best = std::min(best, time(splits));
  int splits = 1;
  while (time(splits) > kNearBest * best) ++splits;
  return ceil_div(visited_tiles, ceil_div(visited_tiles, splits));  // none is left without
}

SplitPolicy choose_splits(const AttentionProblem& problem, const ProgramOptions& unsplit,
                          const std::function<int(const SplitWalks&)>& splits_of,
                          const std::function<int(const SplitWalks&)>& uneven_tiles) {
  const TileProgram forward = build_programs(Algorithm::flash2, Direction::forward, problem, unsplit).front();
  std::int64_t visited = 0;
  int most = 0;
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    for (int block = 0; block < forward.num_blocks(); ++block) {
      const int tiles = forward.inner_tiles(static_cast<int>(entry), block).count();
      most = std::max(most, tiles);
      visited += entries * tiles;
    }
  });
  const std::int64_t walks = problem.batch * forward.num_blocks();
  const SplitWalks all{walks * forward.q_heads(), most};
  if (2 * most * walks > 3 * visited) {
    if (!uneven_tiles) return {SplitPolicy::Kind::automatic, 0};
    const int least = std::max(4, ceil_div(num_n_blocks(problem.band(), forward.tile), kMaxSplits));
    const int tiles = std::max(least, uneven_tiles(all));
    return tiles < most ? SplitPolicy{SplitPolicy::Kind::fixed, tiles * forward.tile.block_n} : SplitPolicy{};
  }
  const int splits = most <= 1 ? 1 : splits_of(all);
  return splits == 1 ? SplitPolicy{} : SplitPolicy{SplitPolicy::Kind::number, splits};
}

}  // namespace tilescope
