// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/mla.hpp"

#include <algorithm>
#include <limits>

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

namespace {

/// The fewest splits within 2 % of the best time, in steps of a CTA, one of which fills an SM: waves of equal
/// shares, and of split keys the partial results, 128 KiB a q tile and split, written and read again, and the
/// second pass.
int mla_splits(std::int64_t q_tiles, int visited_tiles) {
  constexpr double kSetUpSteps = 1.0, kPartialSteps = 1.5, kCombineSteps = 3.0, kNearBest = 1.02;
  constexpr int kSms = 132;
  if (visited_tiles <= 1) return 1;
  const auto steps = [&](int splits) {
    const int share = ceil_div(visited_tiles, splits);
    const auto waves = static_cast<double>(ceil_div(q_tiles * ceil_div(visited_tiles, share), kSms));
    return splits == 1 ? waves * (share + kSetUpSteps)
                       : waves * (share + kSetUpSteps + kPartialSteps) + kCombineSteps;
  };
  const int most = std::min(kSms, visited_tiles);
  double best = steps(1);
  for (int splits = 2; splits <= most; ++splits) best = std::min(best, steps(splits));
  int splits = 1;
  while (steps(splits) > kNearBest * best) ++splits;
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
  const int splits = mla_splits(walks * forward.q_heads(), most);
  return splits == 1 ? SplitPolicy{} : SplitPolicy{SplitPolicy::Kind::number, splits};
}

}  // namespace

ProgramOptions MlaDecode::default_options(const AttentionProblem& problem) {
  ProgramOptions options = ProgramOptions::with_tile(MlaShape::kTile);
  options.pack_gqa = problem.group_size() > 1 && !problem.descales.by_block();
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

std::vector<Boxes> MlaDecode::boxes(const TileProgram& program) {
  if (program.name == PassName::combine) return {};
  return by_copies(program, {TensorName::q, TensorName::k});
}

LaunchShape MlaDecode::launch_shape(const TileProgram& program, const Chip& chip) {
  if (program.name == PassName::combine) {
    return {Decode::combine_threads(compiled_columns(program.problem.value_dim())), 0};
  }
  return {MlaShape::kThreads, MlaShape::on(chip.compute_capability / 10).end()};
}

}  // namespace tilescope
