// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/flash3/choices.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "cpu_ref/schedule/splits.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/fp8/shapes.hpp"
#include "gpu/kernels/flash3/way_search.hpp"

namespace tilescope {
namespace {

/// What a multiprocessor takes for a kv tile, for head dimensions of at most so much. [us, of an H200:
/// NOTES.md]
struct ForwardStep {
  int head_dim;
  double few;   // of CTAs that do not fill the device
  double many;  // which share the L2's rate, and have other q tiles before and behind
};
double forward_step(int head_dim, Flash3Height height, bool many) {
  // At 72 the rows of K and V are 144 bytes, and bound it.
  constexpr ForwardStep kWhole[] = {
      {64, 0.90, 0.90},  {72, 1.28, 1.53},  {80, 1.38, 1.32},  {96, 1.35, 1.20},  {112, 1.38, 1.32},
      {128, 1.28, 1.32}, {160, 0.89, 0.85}, {192, 0.87, 0.96}, {224, 1.03, 1.11}, {256, 1.30, 1.36}};
  constexpr ForwardStep kHalf[] = {
      {64, 1.02, 1.02}, {72, 1.21, 1.45}, {80, 1.42, 1.22}, {96, 1.32, 1.20}, {128, 1.40, 1.36}};
  constexpr ForwardStep kLow[] = {{64, 0.59, 0.59},  {72, 0.80, 1.33},  {80, 0.96, 0.93},  {96, 0.91, 0.88},
                                  {112, 0.85, 0.94}, {128, 0.84, 0.79}, {160, 0.74, 0.65}, {192, 0.77, 0.63},
                                  {224, 0.91, 0.86}, {256, 0.80, 0.93}};
  const auto step_of = [&](const auto& rows) {
    // Wider heads, which are refused once all options are known, as the widest.
    const auto row = std::find_if(std::begin(rows), std::end(rows) - 1,
                                  [&](const ForwardStep& step) { return head_dim <= step.head_dim; });
    return many ? row->many : row->few;
  };
  if (height == Flash3Height::low) return step_of(kLow);
  const bool has_half = flash3_forward_shape(head_dim, Flash3Height::half) != flash3_forward_shape(head_dim);
  return height == Flash3Height::half && has_half ? step_of(kHalf) : step_of(kWhole);
}

/// What end_of_forward() adds up. [us]
struct ForwardCosts {
  double step, ends;  // of a kv tile, of a q tile besides
};
/// @param many  whether there are more CTAs than multiprocessors
ForwardCosts forward_costs(const AttentionProblem& problem, Flash3Height height, bool many) {
  const int head_dim = static_cast<int>(problem.head_dim);
  if (!is_fp8(problem.dtype)) {
    constexpr double kEnds = 3.3;
    return {forward_step(head_dim, height, many), kEnds};
  }
  if (head_dim > 128) return {1.55, 3.4};
  if (head_dim > 64) return {1.22, 1.3};
  return height == Flash3Height::whole ? ForwardCosts{1.38, 2.9} : ForwardCosts{1.02, 1.6};
}

/// When CTAs end that multiprocessors take in the order in which they are issued; of many, about when.
/// @param costs  of a block; the unit is the caller's
double end_as_issued(const Grid& grid, const std::vector<double>& costs) {
  constexpr std::int64_t kMany = 24 * kHopperMultiprocessors;  // of which none ends much later
  if (grid.size() > kMany) {
    const double all = std::accumulate(costs.begin(), costs.end(), 0.0) * grid.num_heads;
    return all / kHopperMultiprocessors + *std::max_element(costs.begin(), costs.end()) / 2;
  }
  MultiprocessorQueue queue;
  for (int i = 0; i < static_cast<int>(grid.size()); ++i) {
    queue.take_for(costs[static_cast<std::size_t>(grid.item(i).block)]);
  }
  return queue.end();
}

/// When the pass ends. [us]
double end_of_forward(const AttentionProblem& problem, const Flash3ForwardWay& way) {
  // us: before and behind all tiles, of a kv tile that a mask cuts, two of a q tile at most, of a part of a
  // split and each KiB that it writes, of the pass that combines
  constexpr double kBase = 4.6, kMasked = 0.13, kPart = 0.3, kWriteKiB = 0.021, kCombine = 2.9,
                   kCombineMB = 0.93;
  const VisibleBand band = problem.band();
  const std::int64_t heads = problem.batch * (way.packed ? problem.heads_kv : problem.heads);
  const int rows_of_head = band.seqlen_q * static_cast<int>(way.packed ? problem.group_size() : 1);
  const TileShape tile = flash3_forward_tile(problem, way.height);
  const int blocks = ceil_div(rows_of_head, tile.block_m);
  const bool many = heads * way.splits * blocks > kHopperMultiprocessors;
  const ForwardCosts of = forward_costs(problem, way.height, many);
  const int heads_together =
      way.packed && flash3_interleaves_heads(problem) ? static_cast<int>(problem.group_size()) : 1;
  const bool split = way.splits > 1;
  const double row_bytes = 4.0 * static_cast<double>(problem.head_dim);
  const double ends = of.ends + (split ? kPart + kWriteKiB * tile.block_m * row_bytes / 1024 : 0.0);
  const Grid grid{
      .num_blocks = blocks,
      .num_heads = static_cast<int>(heads) * way.splits,
      .swizzled_heads = way.splits * ceil_div(flash3_forward_swizzle(problem, tile), heads_together),
      .order = problem.masked() ? TileOrder::head_swizzled : TileOrder::row_major,
      .last_block_first = true};
  const TileShape queries{tile.block_m / heads_together, tile.block_n};
  std::vector<double> costs;
  for (int block = 0; block < grid.num_blocks; ++block) {
    const TileRange tiles = heads_together > 1 ? kv_tiles(band, queries, block)
                                               : packed_kv_tiles(band, tile, rows_of_head, block);
    const int steps = ceil_div(tiles.count(), way.splits);
    costs.push_back(steps * of.step + (problem.masked() ? std::min(steps, 2) * kMasked : 0.0) + ends);
  }
  const double end = end_as_issued(grid, costs);
  if (!split) return kBase + end;
  const double rows = static_cast<double>(problem.batch * problem.heads * problem.seqlen_q);
  return kBase + end + kCombine + kCombineMB * 1e-6 * way.splits * rows * row_bytes;
}

/// The same of persistent CTAs, each of which has one of every so-many-th, there and back: see Flash3KvItem.
double end_of_persistent(const Grid& grid, const std::vector<double>& costs) {
  std::array<double, kHopperMultiprocessors> ends{};
  for (int i = 0; i < static_cast<int>(grid.size()); ++i) {
    const int round = i / kHopperMultiprocessors, place = i % kHopperMultiprocessors;
    ends[static_cast<std::size_t>(round % 2 == 0 ? place : kHopperMultiprocessors - 1 - place)] +=
        costs[static_cast<std::size_t>(grid.item(i).block)];
  }
  return *std::max_element(ends.begin(), ends.end());
}

/// When the fused backward pass ends, its CTAs in the order in which they are issued. [rows x columns]
/// @param most  where multiprocessors take as long on the mean, that is returned: no order ends before
double end_of_backward(const AttentionProblem& problem, TileShape tile, const Flash3BackwardWay& way,
                       double most = std::numeric_limits<double>::infinity()) {
  // Adds to the same sums queue: one key/value head of 384 keys in 42 splits ends 5.7 us later than its
  // products.
  constexpr int kEndsOfATile = 200, kEndsPersistent = 100;
  constexpr int kSumsOfATile = 50, kSumsOfASplit = 2, kPassesOfSums = 300;
  // Under a mask, kv tiles of a swizzle go through its Q, dO and dQ in fp32 at different places: beyond what
  // L2 keeps of these, each doubling costs more than the one before.
  constexpr double kKeptBytes = 48 << 20, kShareOfDoublings = 0.05;
  const int group = static_cast<int>(problem.group_size());
  const int head_splits = head_splits_of(way.splits, group), parts = way.splits / head_splits;
  const VisibleBand band = problem.band();
  const bool shared = way.splits > 1;
  const bool persistent = !shared && way.swizzled_heads == 1 && flash3_can_persist(problem);
  const int ends = shared       ? kEndsOfATile + kSumsOfATile + kSumsOfASplit * way.splits
                   : persistent ? kEndsPersistent
                                : kEndsOfATile;
  const Grid grid{.num_blocks = num_n_blocks(band, tile),
                  .num_heads = static_cast<int>(problem.batch * problem.heads_kv) * way.splits,
                  .swizzled_heads = way.swizzled_heads * way.splits,
                  .order = problem.masked() ? TileOrder::head_swizzled : TileOrder::row_major};
  std::vector<double> costs;
  for (int block = 0; block < grid.num_blocks; ++block) {
    const int steps = group / head_splits * ceil_div(q_tiles(band, tile, block).count(), parts);
    costs.push_back(1.0 * tile.block_n * (steps * tile.block_m + ends));
  }
  const double all = std::accumulate(costs.begin(), costs.end(), 0.0) * grid.num_heads;
  if (all / kHopperMultiprocessors >= most) return all / kHopperMultiprocessors;
  const double end = (persistent ? end_of_persistent(grid, costs) : end_as_issued(grid, costs)) +
                     (shared ? kPassesOfSums * tile.block_n : 0);
  if (!problem.masked()) return end;
  // CTAs that see as many queries each go through a group's heads in step; split, through as many at once.
  const int at_once = flash3_sees_evenly(problem) ? head_splits : 1;
  const double bytes = 8.0 * at_once / parts *
                       static_cast<double>(problem.seqlen_q * problem.head_dim * group * way.swizzled_heads);
  const double doublings = std::log2(std::max(bytes / kKeptBytes, 1.0));
  return end * (1 + kShareOfDoublings * doublings * doublings);
}

/// L2 swizzles as flash3_backward_swizzled_heads() has them.
int usual_backward_swizzle(const AttentionProblem& problem, TileShape tile) {
  if (!problem.masked()) return 1;
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t pairs = std::max<std::int64_t>(problem.visible_pairs(), 1);
  return flash3_backward_swizzled_heads(
      static_cast<int>(problem.head_dim), problem.seqlen_q, heads, problem.group_size(),
      Flash3::short_rows(problem),
      flash3_least_heads(most_seen(problem).queries * tile.block_n * problem.group_size(), pairs, heads));
}

}  // namespace

MostSeen most_seen(const AttentionProblem& problem) {
  const VisibleBand band = problem.band();
  const std::int64_t width = std::int64_t{band.left} + band.right + 1;
  return {std::min<std::int64_t>(band.seqlen_k, width), std::min<std::int64_t>(band.seqlen_q, width)};
}

bool flash3_sees_evenly(const AttentionProblem& problem) {
  constexpr double kMost = 1.25;
  const double pairs = static_cast<double>(problem.visible_pairs()) /
                       static_cast<double>(std::max<std::int64_t>(problem.batch * problem.heads, 1));
  return static_cast<double>(most_seen(problem).queries * problem.seqlen_k) <= kMost * pairs;
}

TileShape flash3_forward_tile(const AttentionProblem& problem, Flash3Height height) {
  if (!is_fp8(problem.dtype)) return flash3_forward_shape(problem, height).tile;
  return flash3_fp8_shape(static_cast<int>(problem.head_dim), Fp8Sums::two_level, height).tile;
}

bool flash3_interleaves_heads(const AttentionProblem& problem) {
  return problem.masked() && !flash3_has_values(problem) && flash3_interleaves_heads(problem.group_size());
}

int flash3_forward_swizzle(const AttentionProblem& problem, TileShape tile) {
  if (!problem.masked()) return 1;
  const std::int64_t pairs = std::max<std::int64_t>(problem.visible_pairs(), 1);
  const std::int64_t heads = problem.batch * problem.heads;
  const int mean_dim = static_cast<int>((problem.head_dim + problem.value_dim()) / 2);
  return flash3_swizzled_heads(mean_dim, problem.seqlen_k, heads, problem.group_size(),
                               flash3_least_heads(most_seen(problem).keys * tile.block_m, pairs, heads));
}

bool flash3_sees_few_keys(const AttentionProblem& problem) {
  return flash3_backward_persistent(problem.visible_pairs(),
                                    problem.batch * problem.heads * problem.seqlen_q);
}

bool flash3_can_persist(const AttentionProblem& problem) {
  const std::int64_t keys = problem.batch * problem.heads_kv * problem.seqlen_k;
  return !flash3_has_backward_tables(problem) &&
         flash3_backward_shape(static_cast<int>(problem.head_dim), false, true).persistent &&
         (flash3_sees_few_keys(problem) || flash3_backward_persistent(problem.visible_pairs(), keys));
}

namespace {

Flash3ForwardWay choose_forward(const AttentionProblem& problem) {
  constexpr int kMostTiles = 8 * kHopperMultiprocessors;   // of 64 rows; more fill the device whole
  constexpr int kMostItems = 10 * kHopperMultiprocessors;  // tiles with their splits
  // Of the time of others that splits are to take, since steps of lone tiles are shorter than those of many.
  constexpr double kShareOfSplits = 0.92;
  constexpr int kMostSplits = 16;
  if (flash3_has_values(problem) || flash3_has_tables(problem) || flash3_has_mods(problem)) return {};
  if (problem.page_size > 0) return {};
  const bool fp8 = is_fp8(problem.dtype);
  Flash3ForwardWay best;
  double first = end_of_forward(problem, best);
  for (const bool packed : {false, true}) {
    if (packed && (problem.group_size() == 1 || fp8)) continue;
    if (packed && problem.masked() && !flash3_interleaves_heads(problem)) continue;
    const std::int64_t heads = problem.batch * (packed ? problem.heads_kv : problem.heads);
    const std::int64_t rows = problem.seqlen_q * (packed ? problem.group_size() : 1);
    for (const Flash3Height height : {Flash3Height::whole, Flash3Height::half, Flash3Height::low}) {
      if (fp8 && height == Flash3Height::low) continue;
      const TileShape tile = flash3_forward_tile(problem, height);
      const std::int64_t tiles = heads * ((rows + tile.block_m - 1) / tile.block_m);
      if (height == Flash3Height::low && tiles > kMostTiles && rows > tile.block_m) continue;
      const std::int64_t most =
          std::min({std::int64_t{kMostSplits}, kMostItems / tiles, most_seen(problem).keys / 256});
      for (int splits = 1; splits <= std::max<std::int64_t>(most, 1); ++splits) {
        const double end =
            end_of_forward(problem, {height, splits, packed}) / (splits > 1 ? kShareOfSplits : 1.0);
        if (end >= first) continue;
        first = end;
        best = {height, splits, packed};
      }
    }
  }
  return best;
}

Flash3BackwardWay choose_backward(const AttentionProblem& problem) {
  constexpr double kShareOfOthers = 0.99;
  constexpr std::int64_t kMostTiles = 16 * kHopperMultiprocessors;  // with their splits
  constexpr std::int64_t kMostReordered = 8 * kHopperMultiprocessors;
  constexpr std::int64_t kMostOfGroups = 100 * kHopperMultiprocessors;
  const TileShape tile = flash3_backward_shape(problem).tile;
  if (flash3_has_backward_tables(problem)) return {1, usual_backward_swizzle(problem, tile)};
  const std::int64_t heads = problem.batch * problem.heads_kv;
  const std::int64_t tiles = heads * num_n_blocks(problem.band(), tile);
  const int most = static_cast<int>(kMostTiles / tiles);
  Flash3BackwardWay best{1, usual_backward_swizzle(problem, tile)};
  // Of a long group L2 keeps the part that a split goes through, however many tiles there are.
  const bool long_groups = problem.group_size() > 1 && problem.masked() && !flash3_sees_evenly(problem);
  if (is_fp8(problem.dtype) || tiles > (long_groups ? kMostOfGroups : kMostTiles)) return best;
  double first = end_of_backward(problem, tile, best);
  const auto look_at = [&](const Flash3BackwardWay& other) {
    const double end = end_of_backward(problem, tile, other, kShareOfOthers * first);
    if (end >= kShareOfOthers * first) return;
    first = end;
    best = other;
  };
  const int usual = best.swizzled_heads;
  for (int splits = 2; splits <= most; ++splits) look_at({splits, usual});
  if (!problem.masked() || (tiles > kMostReordered && !long_groups)) return best;
  const int most_reordered = std::clamp(most, long_groups ? 3 : 1, 4);
  for (int parts = 1; parts <= heads; parts *= 2) {
    const int swizzled = static_cast<int>((heads + parts - 1) / parts);
    for (int splits = 1; splits <= most_reordered; ++splits) look_at({splits, swizzled});
    look_at({best.splits, swizzled});
  }
  return best;
}

}  // namespace

Flash3ForwardWay flash3_forward_way(const AttentionProblem& problem) {
  return remembered<Flash3ForwardWay, choose_forward>(problem);
}
Flash3BackwardWay flash3_backward_way(const AttentionProblem& problem) {
  return remembered<Flash3BackwardWay, choose_backward>(problem);
}

}  // namespace tilescope
