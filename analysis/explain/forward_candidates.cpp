// SPDX-License-Identifier: Apache-2.0
// Forward passes as they are made: by FlashAttention-1 to -4, cuDNN and PyTorch's memory-efficient attention.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/explain/candidate_parts.hpp"

namespace tilescope {
namespace {

using enum TensorName;

std::int64_t row_bytes_of(const AttentionProblem& problem, TensorName tensor) {
  const TensorExtent extent = tensor_extent(problem, tensor);
  return extent.cols * extent.element_bytes;
}

/// A K/V tile that serves several query heads of its group: as many rows of Q are on chip.
void add_shared(CandidateCollector& collector, const TileProgram& flash2) {
  constexpr std::int64_t kMostRows = 256;
  const std::int64_t group = flash2.problem.group_size();
  for (std::int64_t heads = 2; heads < group && heads * flash2.tile.block_m <= kMostRows; ++heads) {
    if (group % heads != 0) continue;
    collector.add("forward", fmt::format("a K/V tile is loaded once for {} query heads of its group", heads),
                  {flash2}, heads);
  }
}

/// Q tiles of the rows of all query heads of a group, query after query, and what they visit, over all heads.
struct PackedWalk {
  std::int64_t blocks = 0;   // of a group
  std::int64_t tiles = 0;    // visited
  std::int64_t kv_rows = 0;  // of them, clipped to the keys
};

PackedWalk packed_walk(const AttentionProblem& problem, TileShape tile) {
  const std::int64_t group = problem.group_size(), rows = problem.seqlen_q * group;
  const Mask mask = problem.mask_of(0);
  const std::int64_t groups = problem.batch * problem.heads_kv;
  PackedWalk walk{(rows + tile.block_m - 1) / tile.block_m, 0, 0};
  for (std::int64_t block = 0; block < walk.blocks; ++block) {
    const std::int64_t end = std::min(rows, (block + 1) * tile.block_m);
    const auto tiles_of = [&](std::int64_t row) {
      return mask.kv_tiles({1, tile.block_n}, static_cast<int>(row / group));
    };
    const TileRuns first = tiles_of(block * tile.block_m), last = tiles_of(end - 1);
    if (last.empty()) continue;
    const std::int64_t from = first.empty() ? 0 : first.runs().front().begin, to = last.end_tile();
    walk.tiles += groups * (to - from);
    walk.kv_rows += groups * (std::min(to * tile.block_n, problem.seqlen_k) - from * tile.block_n);
  }
  return walk;
}

/// As in FlashAttention-4: where a tile holds no whole queries, Q comes row by row.
void add_packed(CandidateCollector& collector, const TileProgram& flash2) {
  const AttentionProblem& problem = flash2.problem;
  const std::int64_t group = problem.group_size();
  if (group == 1 || !problem.key_lengths.empty()) return;
  const TileShape tile = flash2.tile;
  const PackedWalk walk = packed_walk(problem, tile);
  const std::int64_t groups = problem.batch * problem.heads_kv, rows = groups * group * problem.seqlen_q;
  const std::int64_t q_row = row_bytes_of(problem, q),
                     kv_row = row_bytes_of(problem, k) + row_bytes_of(problem, v);
  const bool whole_queries = tile.block_m % group == 0;
  for (const bool boxed : {false, true}) {
    const std::string how = !boxed          ? ""
                            : whole_queries ? ", tiles copied whole, as boxes"
                                            : ", tiles of K and V copied whole, as boxes";
    CandidateProgram& packed =
        collector.add("forward", "query heads of a group packed into a tile" + how, {flash2});
    const std::int64_t q_rows = boxed && whole_queries ? groups * walk.blocks * tile.block_m : rows;
    const std::int64_t kv_rows = boxed ? walk.tiles * tile.block_n : walk.kv_rows;
    packed.blocks = walk.blocks;
    packed.num_ctas = groups * walk.blocks;
    packed.filled_bytes = (q_rows - rows) * q_row + (kv_rows - walk.kv_rows) * kv_row;
    packed.bytes.read_bytes = q_rows * q_row + kv_rows * kv_row;
    packed.copy_engine = boxed;
  }
}

/// As in PyTorch's memory-efficient attention, which also pads the lse. Of a tile that the mask cuts, it
/// loads the keys up to the last one that is seen. Wide heads have their sums of O in memory.
void add_reloading(CandidateCollector& collector, const TileProgram& flash2) {
  constexpr std::int64_t kLseRows = 32;
  const AttentionProblem& problem = flash2.problem;
  TileProgram steps = flash2, keys = flash2;
  steps.prologue.clear();
  steps.phases = {{load(q)}};
  keys.prologue.clear();
  keys.epilogue.clear();
  keys.products = {};
  keys.tile.block_n = 1;
  const std::int64_t padding = rows_beyond(problem, kLseRows) * tensor_extent(problem, lse).element_bytes;
  const auto add = [&](const std::string& convention, std::int64_t more) -> CandidateProgram& {
    CandidateProgram& candidate = collector.add("forward", convention, {steps, keys});
    const TensorExtent values = tensor_extent(problem, v);
    candidate.on_chip.streamed += values.cols * values.element_bytes * flash2.tile.block_n;
    candidate.on_chip.in_slices = true;
    candidate.bytes.write_bytes += more;
    return candidate;
  };
  const std::string convention = "Q loaded at every step";
  add(convention, 0);
  if (padding > 0) add(convention + ", lse padded to 32 rows", padding);
  const TensorExtent sums = tensor_extent(problem, out);
  CandidateProgram& in_memory = add(convention + ", sums of O in memory, lse padded to 32 rows", padding);
  const std::int64_t step_rows = tensor_traffic(steps).front().load_bytes / row_bytes_of(problem, q);
  const std::int64_t again = (step_rows - sums.batch * sums.heads * sums.rows) * sums.cols *
                             std::int64_t{element_bytes(ElementType::fp32)};
  in_memory.bytes.read_bytes += again;
  in_memory.through_l1 = again;
  in_memory.bytes.write_bytes += again;
  in_memory.on_chip.sums = 0;
  steps.epilogue = {store(out)};
  add(convention + ", no lse stored", 0);
}

/// Keys divided among CTAs after equal numbers of tiles, as in FlashAttention-2.
void add_split(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
               std::span<const int> splits) {
  const int tiles = num_n_blocks(problem.band(), tile);
  for (const int count : splits) {
    if (count < 2 || count > tiles) continue;
    const int share = (tiles + count - 1) / count;
    if ((tiles + share - 1) / share != count) continue;  // some would have none
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.splits = {SplitPolicy::Kind::fixed, share * tile.block_n};
    collector.add("forward", fmt::format("keys split among {} CTAs, partial results stored", count),
                  {build_programs(Algorithm::flash2, Direction::forward, problem, options).front()});
  }
}

}  // namespace

void add_forward(CandidateCollector& collector, const AttentionProblem& problem, TileShape tile,
                 std::span<const int> splits) {
  const ProgramOptions options = ProgramOptions::with_tile(tile);
  const TileProgram flash2 = build_programs(Algorithm::flash2, Direction::forward, problem, options).front();
  TileProgram without_lse = flash2;
  without_lse.epilogue = {store(out)};
  collector.add("forward", "", {flash2});
  collector.add("forward", "no lse stored", {without_lse});
  if (problem.causal) {
    CandidateProgram& looked_up = collector.add("forward", "blocks looked up in tables", {flash2});
    looked_up.bytes.read_bytes += block_table_bytes(flash2);
    looked_up.library = "flex_attention";
  }
  for (const Panels panels : panels_of(problem)) {
    const auto boxed = by_boxes(flash2, panels);
    if (!boxed) continue;
    CandidateProgram& candidate =
        collector.add("forward", "tiles copied whole, as boxes" + panels_text(problem, panels), {*boxed});
    if (candidate.filled_bytes == 0) collector.drop_last();
  }
  add_reloading(collector, flash2);
  add_shared(collector, flash2);
  add_packed(collector, flash2);
  add_split(collector, problem, tile, splits);
  collector.add("flash1 forward", "",
                {build_programs(Algorithm::flash1, Direction::forward, problem, options).front()});
}

void add_combining(CandidateCollector& collector, const AttentionProblem& problem,
                   std::span<const int> splits) {
  const TensorExtent sums = tensor_extent(problem, lse);
  const std::int64_t rows = sums.batch * sums.heads * sums.rows, fp32 = sums.element_bytes;
  const TensorExtent values = tensor_extent(problem, out);
  for (const int count : splits) {
    for (const std::int64_t rows_of_cta : {4, 8, 16}) {
      TileProgram program = elementwise(problem, Axis::q, {}, {store(out), store(lse)});
      CandidateProgram& combine = collector.add(
          "combine", fmt::format("{} partial results, {} rows a CTA", count, rows_of_cta), {program});
      const std::int64_t partial = count * rows * values.cols * fp32;
      combine.num_ctas = combine.blocks = (rows + rows_of_cta - 1) / rows_of_cta;
      combine.must.read_bytes = partial + count * rows * fp32;
      combine.bytes.read_bytes = partial;
      for (std::int64_t split = 0; split < count; ++split) {
        for (std::int64_t row = 0; row < rows; row += rows_of_cta) {
          const std::int64_t end = split * rows + std::min(rows, row + rows_of_cta);
          combine.bytes.read_bytes += touched_bytes((split * rows + row) * fp32, end * fp32);
        }
      }
    }
  }
}

}  // namespace tilescope
