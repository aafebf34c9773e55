// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash3/flash3.hpp"

#include <functional>
#include <numeric>
#include <queue>

#include "cpu_ref/schedule/splits.hpp"
#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"

namespace tilescope {
namespace {

/// When the last tile ends, the longest first on all multiprocessors.
/// @param cost_of  (int block): how long a multiprocessor takes for a tile; the unit is the caller's
template <typename Cost>
double end_of_tiles(int blocks, std::int64_t heads, Cost&& cost_of) {
  constexpr std::int64_t kManyTiles = 100 * kHopperMultiprocessors;  // of which none ends much later
  std::vector<double> costs;
  for (int block = 0; block < blocks; ++block) costs.push_back(cost_of(block));
  std::sort(costs.begin(), costs.end(), std::greater<>());
  if (blocks * heads > kManyTiles) {
    const double all = std::accumulate(costs.begin(), costs.end(), 0.0) * static_cast<double>(heads);
    return all / kHopperMultiprocessors + costs.front() / 2;
  }
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (int i = 0; i < kHopperMultiprocessors; ++i) free.push(0.0);
  double end = 0.0;
  for (const double cost : costs) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const double this_end = free.top() + cost;
      free.pop();
      free.push(this_end);
      end = std::max(end, this_end);
    }
  }
  return end;
}

/// The most keys that a query sees, and the most queries that see a key.
struct MostSeen {
  std::int64_t keys, queries;
};
MostSeen most_seen(const AttentionProblem& problem) {
  const VisibleBand band = problem.band();
  const std::int64_t width = std::int64_t{band.left} + band.right + 1;
  return {std::min<std::int64_t>(band.seqlen_k, width), std::min<std::int64_t>(band.seqlen_q, width)};
}

/// A way to run the forward pass in 16 bits.
struct ForwardChoice {
  bool low = false;  // q tiles of 64 rows
  int splits = 1;
  bool packed = false;
};

/// What a multiprocessor takes for a kv tile. [us, of an H200: NOTES.md]
double forward_step(const Flash3ForwardShape& shape) {
  struct Row {
    int head_dim;
    double step;
  };
  constexpr Row kWhole[] = {{64, 0.87},  {80, 1.6},   {96, 1.18}, {112, 1.44},
                            {128, 1.34}, {160, 0.91}, {192, 1.0}, {256, 1.25}};
  constexpr Row kLow[] = {{64, 0.57}, {96, 1.2}, {128, 0.83}, {192, 0.72}, {256, 0.87}};
  const auto step_of = [&](const auto& rows) {
    return std::find_if(std::begin(rows), std::end(rows),
                        [&](const Row& row) { return row.head_dim == shape.head_dim; })
        ->step;
  };
  return shape.splits_keys ? step_of(kLow) : step_of(kWhole);
}

/// When the pass ends. [us]
double end_of_forward(const AttentionProblem& problem, const ForwardChoice& choice) {
  // us: before and behind all tiles, of a q tile's ends, of a KiB that a split writes, of the pass that
  // combines
  constexpr double kBase = 5.5, kEnds = 2.6, kWriteKiB = 0.017, kCombine = 2.3, kCombineMB = 0.83;
  const Flash3ForwardShape shape = flash3_forward_shape(static_cast<int>(problem.head_dim), choice.low);
  const double step = forward_step(shape);
  const VisibleBand band = problem.band();
  const std::int64_t heads = problem.batch * (choice.packed ? problem.heads_kv : problem.heads);
  const int rows_of_head = band.seqlen_q * static_cast<int>(choice.packed ? problem.group_size() : 1);
  const bool split = choice.splits > 1;
  const double row_bytes = 4.0 * static_cast<double>(problem.head_dim);
  const double ends = kEnds + (split ? kWriteKiB * shape.tile.block_m * row_bytes / 1024 : 0.0);
  const int blocks = ceil_div(rows_of_head, shape.tile.block_m);
  const double end = end_of_tiles(blocks, heads * choice.splits, [&](int block) {
    const TileRange tiles = packed_kv_tiles(band, shape.tile, rows_of_head, block);
    return ceil_div(tiles.count(), choice.splits) * step + ends;
  });
  if (!split) return kBase + end;
  const double rows = static_cast<double>(problem.batch * problem.heads * problem.seqlen_q);
  return kBase + end + kCombine + kCombineMB * 1e-6 * choice.splits * rows * row_bytes;
}

/// The way that ends first.
ForwardChoice forward_choice(const AttentionProblem& problem) {
  constexpr int kMostTiles = 8 * kHopperMultiprocessors;   // of 64 rows; more fill the device whole
  constexpr int kMostItems = 10 * kHopperMultiprocessors;  // tiles with their splits
  constexpr double kShareOfOthers = 0.98;                  // that a choice is tried for
  constexpr int kMostSplits = 16;
  if (is_fp8(problem.dtype)) return {};
  const int head_dim = static_cast<int>(problem.head_dim);
  ForwardChoice best;
  double first = end_of_forward(problem, best);
  for (const bool packed : {false, true}) {
    if (packed && problem.group_size() == 1) continue;
    const std::int64_t heads = problem.batch * (packed ? problem.heads_kv : problem.heads);
    const std::int64_t rows = problem.seqlen_q * (packed ? problem.group_size() : 1);
    for (const bool low : {false, true}) {
      const TileShape tile = flash3_forward_shape(head_dim, low).tile;
      const std::int64_t tiles = heads * ((rows + tile.block_m - 1) / tile.block_m);
      if (low && tiles > kMostTiles) continue;
      const std::int64_t most =
          std::min({std::int64_t{kMostSplits}, kMostItems / tiles, most_seen(problem).keys / 256});
      for (int splits = 1; splits <= std::max<std::int64_t>(most, 1); ++splits) {
        const double end = end_of_forward(problem, {low, splits, packed});
        if (end >= kShareOfOthers * first) continue;
        first = end;
        best = {low, splits, packed};
      }
    }
  }
  return best;
}

/// The same of the fused backward pass. [rows x columns]
/// @param splits  see ProgramOptions::query_splits
double end_of_kv_tiles(const AttentionProblem& problem, TileShape tile, int splits = 1) {
  // Adds to the same sums queue: one key/value head of 384 keys in 42 splits ends 5.7 us later than its
  // products.
  constexpr int kEndsOfATile = 200, kSumsOfATile = 100, kSumsOfASplit = 2, kPassesOfSums = 300;
  const int group = static_cast<int>(problem.group_size());
  const int head_splits = head_splits_of(splits, group), parts = splits / head_splits;
  const VisibleBand band = problem.band();
  const bool shared = splits > 1;
  const int sums = shared ? kSumsOfATile + kSumsOfASplit * splits : 0;
  const double end =
      end_of_tiles(num_n_blocks(band, tile), problem.batch * problem.heads_kv * splits, [&](int block) {
        const int steps = group / head_splits * ceil_div(q_tiles(band, tile, block).count(), parts);
        return 1.0 * tile.block_n * (steps * tile.block_m + kEndsOfATile + sums);
      });
  return end + (shared ? kPassesOfSums * tile.block_n : 0);
}

/// In how many splits the backward pass ends first, by three hundredths at least: see
/// ProgramOptions::query_splits.
int query_splits(const AttentionProblem& problem) {
  constexpr double kShareOfSplits = 0.97;
  constexpr int kMostWaves = 16;
  const TileShape tile = flash3_backward_shape(static_cast<int>(problem.head_dim)).tile;
  const std::int64_t tiles = problem.batch * problem.heads_kv * num_n_blocks(problem.band(), tile);
  if (is_fp8(problem.dtype)) return 1;
  int best = 1;
  double first = end_of_kv_tiles(problem, tile);
  const int most = static_cast<int>(kMostWaves * kHopperMultiprocessors / tiles);
  for (int splits = 2; splits <= most; ++splits) {
    const double end = end_of_kv_tiles(problem, tile, splits);
    if (end >= kShareOfSplits * first) continue;
    first = end;
    best = splits;
  }
  return best;
}

Flash3ForwardShape forward_shape(const TileProgram& program) {
  const int head_dim = static_cast<int>(program.problem.head_dim);
  return flash3_forward_shape(head_dim, program.tile == flash3_forward_shape(head_dim, true).tile);
}

Flash3BackwardShape backward_shape(const TileProgram& program) {
  const int head_dim = static_cast<int>(program.problem.head_dim);
  return flash3_backward_shape(head_dim, program.ordered, Flash3::short_rows(program.problem));
}

Flash3Fp8Shape fp8_shape(const AttentionProblem& problem, Fp8Sums sums) {
  return flash3_fp8_shape(static_cast<int>(problem.head_dim), sums, Flash3::short_rows(problem));
}

bool can_persist(const AttentionProblem& problem) {
  return flash3_backward_shape(static_cast<int>(problem.head_dim), false, true).persistent &&
         flash3_backward_persistent(problem.visible_pairs(),
                                    problem.batch * problem.heads * problem.seqlen_q);
}

/// claimed is for persistent CTAs in the default order: in another, long and short kv tiles might not come in
/// turn.
DqStart dq_start(const AttentionProblem& problem, const ProgramOptions& options) {
  const bool in_turn = !problem.masked() || options.fused_swizzled_heads == 1;
  if (can_persist(problem) && in_turn) return DqStart::claimed;
  return flash3_stores_in_order(static_cast<int>(problem.head_dim), problem.masked()) ? DqStart::in_order
                                                                                      : DqStart::cleared;
}

}  // namespace

bool Flash3::short_rows(const AttentionProblem& problem) {
  return flash3_short_rows(problem.visible_pairs(), problem.batch * problem.heads * problem.seqlen_q);
}

ProgramOptions Flash3::default_options(const AttentionProblem& problem) {
  ProgramOptions options;
  const ForwardChoice forward = forward_choice(problem);
  options.set_tile(Direction::forward,
                   is_fp8(problem.dtype)
                       ? fp8_shape(problem, Fp8Sums::two_level).tile
                       : flash3_forward_shape(static_cast<int>(problem.head_dim), forward.low).tile);
  if (forward.splits > 1) options.splits = {SplitPolicy::Kind::number, forward.splits};
  options.pack_gqa = forward.packed;
  options.query_splits = query_splits(problem);
  options.set_tile(Direction::backward, flash3_backward_shape(static_cast<int>(problem.head_dim)).tile);
  options.backward = BackwardOrder::fused;
  options.scan = Scan::descending;
  options.work_counter = true;
  if (is_fp8(problem.dtype)) options.fp8_sums = Fp8Sums::two_level;
  if (problem.masked()) {
    const std::int64_t pairs = std::max<std::int64_t>(problem.visible_pairs(), 1);
    const auto [keys, queries] = most_seen(problem);
    options.order = TileOrder::head_swizzled;
    options.swizzled_heads =
        flash3_swizzled_heads(static_cast<int>(problem.head_dim), problem.seqlen_k,
                              problem.batch * problem.heads, problem.group_size(),
                              flash3_least_heads(keys * options[PassName::forward].tile.block_m, pairs,
                                                 problem.batch * problem.heads));
    options.fused_swizzled_heads = flash3_backward_swizzled_heads(
        static_cast<int>(problem.head_dim), problem.seqlen_q, problem.batch * problem.heads_kv,
        problem.group_size(), short_rows(problem),
        flash3_least_heads(queries * options[PassName::dkdvdq].tile.block_n * problem.group_size(), pairs,
                           problem.batch * problem.heads_kv));
  }
  options.dq_flags = Flash3BackwardShape::consumers();
  options.dq_start = dq_start(problem, options);
  return options;
}

std::vector<TileShape> Flash3::tile_choices(const AttentionProblem& problem, PassName pass) {
  const TileShape tile = default_options(problem)[pass].tile;
  if (pass != PassName::forward || is_fp8(problem.dtype)) return {tile};
  const auto of_height = [&](bool low) {
    return flash3_forward_shape(static_cast<int>(problem.head_dim), low).tile;
  };
  return {tile, of_height(tile != of_height(true))};
}

bool Flash3::persistent(const TileProgram& program) {
  return program.query_splits() == 1 && can_persist(program.problem) && program.grid.heads_in_turn();
}

std::vector<Boxes> Flash3::boxes(const TileProgram& program) {
  using enum TensorName;
  const int bytes = element_bytes(program.problem.dtype);
  const auto boxes = [bytes](TensorName tensor, const gpu::sm90::PanelTile& tile, bool evict_first = false) {
    return Boxes{tensor, tile.rows, tile.panel_cols() * bytes, evict_first};
  };
  constexpr bool kEvictFirst = true;  // what a CTA loads once: CacheHint of the producers
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program.problem, program.fp8_sums);
    return {boxes(q, shape.q_tile(), kEvictFirst), boxes(k, shape.kv_tile()), boxes(v, shape.kv_tile())};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program);
    return {boxes(q, shape.q_tile(), kEvictFirst), boxes(k, shape.kv_tile()), boxes(v, shape.kv_tile())};
  }
  if (program.name != PassName::dkdvdq) return {};
  const Flash3BackwardShape shape = backward_shape(program);
  return {boxes(q, shape.q_tile()), boxes(dout, shape.q_tile()), boxes(k, shape.kv_tile(), kEvictFirst),
          boxes(v, shape.kv_tile(), kEvictFirst)};
}

std::optional<std::string> Flash3::lack(const AttentionProblem& problem, const ProgramOptions& options) {
  const bool splits = options.splits.kind != SplitPolicy::Kind::none;
  if (is_fp8(problem.dtype) && (splits || options.pack_gqa)) {
    return "splits keys and packs heads of 16-bit types alone";
  }
  return std::nullopt;
}

LaunchShape Flash3::launch_shape(const TileProgram& program) {
  if (program.name == PassName::combine) return {combine_threads_of(program.problem.head_dim), 0};
  if (program.name == PassName::forward && is_fp8(program.problem.dtype)) {
    const Flash3Fp8Shape shape = fp8_shape(program.problem, program.fp8_sums);
    return {shape.threads(), Flash3Fp8Layout(shape).end, 1};
  }
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program);
    return {shape.threads(), Flash3ForwardLayout(shape).end, 1};
  }
  if (program.name == PassName::dkdvdq) {
    const Flash3BackwardShape shape = backward_shape(program);
    return {Flash3BackwardShape::threads(), Flash3BackwardLayout(shape).end, 1};
  }
  return {kElementwiseThreads, 0};
}

WarpWork Flash3::warp_work(const TileProgram& program) {
  // Products of fp8 are summed twice, and who keeps an order waits for others' turns.
  if (is_fp8(program.problem.dtype) || program.ordered) return {};
  constexpr int kRows = 64;  // of a WGMMA
  if (program.name == PassName::forward) {
    const Flash3ForwardShape shape = forward_shape(program);
    if (shape.tile != program.tile) return {};
    return {.warps = shape.warps(),
            .in_flight = 2,
            .ahead = shape.q_stages > 1,
            .skipping_rows = shape.skips ? kRows : 0,
            .products = {{kRows, shape.own_keys()}, {kRows}}};
  }
  const Flash3BackwardShape shape = backward_shape(program);
  if (shape.tile != program.tile) return {};
  const int queries = shape.tile.block_m, scores = queries * shape.tile.block_n;
  constexpr int kScoreBytes = 2, kProbabilityBytes = 4;
  return {.warps = Flash3BackwardShape::warps(),
          // For Q and dO, for dS, for a place to put dQ; specialised ones for P, and a place to put it, too.
          .waits = shape.specialised() ? 5 : 3,
          .exchanged_bytes = scores * (kScoreBytes + (shape.specialised() ? 2 * kProbabilityBytes : 0)),
          .products = {{kRows, queries}, {kRows, queries}, {kRows}, {kRows}, {kRows, shape.dq_cols(0)}}};
}

}  // namespace tilescope
