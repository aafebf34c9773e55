// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/decode/mla.hpp"

#include <algorithm>

#include "gpu/kernels/decode/choose_splits.hpp"
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/mla_wgmma/shape.hpp"
#include "gpu/registry/asked_by.hpp"

namespace tilescope {

namespace {

/// The fewest splits within 2 % of the best time: of waves of CTAs, one of which fills an SM, and of what
/// splits cost beside, the partial results and the second pass, in which a CTA has few splits under way at a
/// time.
int mla_splits(const SplitWalks& walks, int rows) {
  // Of an H200, in microseconds: a step by rows of the tile, of which more than 16 run by wgmma; what a CTA
  // does beside steps, its partial result, a second pass, each split in there.
  const double step = rows > 16 ? 2.0 : 2.2;
  constexpr double kSetUp = 4, kPartial = 2, kCombine = 8, kSplit = 0.2;
  constexpr int kSms = 132;
  const auto time = [&](int splits) {
    const int share = ceil_div(walks.visited_tiles, splits);
    const auto waves =
        static_cast<double>(ceil_div(walks.q_tiles * ceil_div(walks.visited_tiles, share), kSms));
    const double unsplit = waves * (share * step + kSetUp);
    return splits == 1 ? unsplit : unsplit + waves * kPartial + kCombine + kSplit * splits;
  };
  return fewest_splits(walks.visited_tiles, std::min(kSms, walks.visited_tiles), time);
}

}  // namespace

ProgramOptions MlaDecode::default_options(const AttentionProblem& problem) {
  const bool packs = problem.group_size() > 1 && !problem.descales.by_block();
  const MlaShape shape{MlaShape::rows_for(problem.seqlen_q * (packs ? problem.group_size() : 1))};
  ProgramOptions options = ProgramOptions::with_tile(shape.tile());
  options.pack_gqa = packs;
  options.splits = choose_splits(problem, options,
                                 [&shape](const SplitWalks& walks) { return mla_splits(walks, shape.rows); });
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
  if (program.name == PassName::combine) return combined_lse(program);
  return by_copies(program, {TensorName::q, TensorName::k});
}

bool MlaDecode::by_wgmma(const TileProgram& program, const Chip& chip) {
  return chip.compute_capability == 90 && program.tile.block_m >= MlaWgmmaShape::kLeastRows;
}

LaunchShape MlaDecode::mma_shape(const TileProgram& program, const Chip& chip) {
  return {MlaShape::kThreads, MlaShape::on(program.tile.block_m, chip.compute_capability / 10).end()};
}

LaunchShape MlaDecode::launch_shape(const TileProgram& program, const Chip& chip) {
  if (program.name == PassName::combine) {
    return {Decode::combine_threads(compiled_columns(program.problem.value_dim())), 0};
  }
  if (by_wgmma(program, chip)) return {MlaWgmmaShape::kThreads, MlaWgmmaShape::end()};
  return mma_shape(program, chip);
}

}  // namespace tilescope
