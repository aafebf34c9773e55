// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/mla.hpp"

#include <algorithm>
#include <limits>

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

namespace {

/// The fewest splits within 2 % of the best time: of waves of CTAs, one of which fills an SM, and of what
/// splits cost beside, the partial results and the second pass, in which a CTA has few splits under way at a
/// time.
int mla_splits(std::int64_t q_tiles, int visited_tiles, int rows) {
  // Of an H200, in microseconds: a step by rows of the tile, what a CTA does beside steps, its partial
  // result, a second pass, each split in there.
  const double step = rows > 32 ? 4.2 : rows > 16 ? 2.9 : 2.2;
  constexpr double kSetUp = 4, kPartial = 2, kCombine = 8, kSplit = 0.2, kNearBest = 1.02;
  constexpr int kSms = 132;
  if (visited_tiles <= 1) return 1;
  const auto time = [&](int splits) {
    const int share = ceil_div(visited_tiles, splits);
    const auto waves = static_cast<double>(ceil_div(q_tiles * ceil_div(visited_tiles, share), kSms));
    const double unsplit = waves * (share * step + kSetUp);
    return splits == 1 ? unsplit : unsplit + waves * kPartial + kCombine + kSplit * splits;
  };
  const int most = std::min(kSms, visited_tiles);
  double best = time(1);
  for (int splits = 2; splits <= most; ++splits) best = std::min(best, time(splits));
  int splits = 1;
  while (time(splits) > kNearBest * best) ++splits;
  return ceil_div(visited_tiles, ceil_div(visited_tiles, splits));  // none is left without
}

/// Of a problem whose walks are alike; automatic where some are much longer than others.
SplitPolicy mla_split_policy(const AttentionProblem& problem, const ProgramOptions& unsplit) {
  const TileProgram forward =
      build_programs(MlaDecode::algorithm, Direction::forward, problem, unsplit).front();
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
  if (2 * most * walks > 3 * visited) return {SplitPolicy::Kind::automatic, 0};
  const int splits = mla_splits(walks * forward.q_heads(), most, forward.tile.block_m);
  return splits == 1 ? SplitPolicy{} : SplitPolicy{SplitPolicy::Kind::number, splits};
}

}  // namespace

ProgramOptions MlaDecode::default_options(const AttentionProblem& problem) {
  const bool packs = problem.group_size() > 1 && !problem.descales.by_block();
  const MlaShape shape{MlaShape::rows_for(problem.seqlen_q * (packs ? problem.group_size() : 1))};
  ProgramOptions options = ProgramOptions::with_tile(shape.tile());
  options.pack_gqa = packs;
  options.splits = mla_split_policy(problem, options);
  return options;
}

std::optional<std::string> MlaDecode::lack(const AttentionProblem& problem, const ProgramOptions&) {
  if (!problem.shared_kv) return "reads values that are columns of the keys alone: shared_kv must be on";
  if (problem.value_dim() > MlaShape::kValueDim) {
    return "computes head_dim_v " + std::to_string(MlaShape::kValueDim) + " and below, not " +
           std::to_string(problem.value_dim());
  }
  if (problem.value_dim() % 8 == 0) return std::nullopt;
  return "computes multiples of 8 as head_dim_v, not " + std::to_string(problem.value_dim());
}

std::vector<TileShape> MlaDecode::tile_choices(const AttentionProblem& problem, PassName pass) {
  std::vector<TileShape> tiles{default_options(problem)[pass].tile};
  for (const int rows : {64, 32, 16}) {
    if (rows != tiles.front().block_m) tiles.push_back(MlaShape{rows}.tile());
  }
  return tiles;
}

std::vector<Boxes> MlaDecode::boxes(const TileProgram& program) {
  if (program.name == PassName::combine) return {};
  return by_copies(program, {TensorName::q, TensorName::k});
}

LaunchShape MlaDecode::launch_shape(const TileProgram& program, const Chip& chip) {
  if (program.name == PassName::combine) {
    return {Decode::combine_threads(compiled_columns(program.problem.value_dim())), 0};
  }
  return {MlaShape::kThreads, MlaShape::on(program.tile.block_m, chip.compute_capability / 10).end()};
}

}  // namespace tilescope
