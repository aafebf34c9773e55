// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/choose_splits.hpp"

#include <algorithm>

namespace tilescope {

std::int64_t UnevenWalks::busy(int tiles_of_split) const {
  std::int64_t busy = 0;
  for (const Walk& walk : walks) busy += walk.q_tiles * ceil_div(walk.tiles, tiles_of_split);
  return busy;
}

int fewest_splits(int visited_tiles, int most, const SplitTime& time, double near_best) {
  double best = time(1);
  for (int splits = 2; splits <= most; ++splits) best = std::min(best, time(splits));
  int splits = 1;
  while (time(splits) > near_best * best) ++splits;
  return ceil_div(visited_tiles, ceil_div(visited_tiles, splits));  // none is left without
}

SplitPolicy choose_splits(const AttentionProblem& problem, const ProgramOptions& unsplit,
                          const std::function<int(const SplitWalks&)>& splits_of,
                          const std::function<int(const UnevenWalks&)>& uneven_tiles) {
  const TileProgram forward = build_programs(Algorithm::flash2, Direction::forward, problem, unsplit).front();
  UnevenWalks all;
  problem.for_each_length([&](std::int64_t entries, std::int64_t entry) {
    for (int block = 0; block < forward.num_blocks(); ++block) {
      const int tiles = forward.inner_tiles(static_cast<int>(entry), block).count();
      all.walks.push_back({entries * forward.q_heads(), tiles});
      all.most = std::max(all.most, tiles);
      all.q_tiles += all.walks.back().q_tiles;
      all.tiles += all.walks.back().q_tiles * tiles;
    }
  });
  const int most = all.most;
  if (2 * most * all.q_tiles > 3 * all.tiles) {
    if (!uneven_tiles) return {SplitPolicy::Kind::automatic, 0};
    const int least = std::max(4, ceil_div(num_n_blocks(problem.band(), forward.tile), kMaxSplits));
    const int tiles = std::max(least, uneven_tiles(all));
    return tiles < most ? SplitPolicy{SplitPolicy::Kind::fixed, tiles * forward.tile.block_n} : SplitPolicy{};
  }
  const int splits = most <= 1 ? 1 : splits_of({all.q_tiles, most});
  return splits == 1 ? SplitPolicy{} : SplitPolicy{SplitPolicy::Kind::number, splits};
}

}  // namespace tilescope
