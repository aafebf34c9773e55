// SPDX-License-Identifier: Apache-2.0
// Splits and order of the CTAs of flash3's ordered backward pass. A kv tile adds to a slot of a q tile's dQ
// after those in front of it: CTAs that run at once should have other heads, or other q tiles, and a slot
// keeps no more of them busy than it has q tiles. Where each kv tile has a slot of its own, nobody waits.
#include <limits>

#include "cpu_ref/schedule/splits.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"
#include "gpu/kernels/flash3/backward/shapes.hpp"
#include "gpu/kernels/flash3/choices.hpp"
#include "gpu/kernels/flash3/flash3.hpp"
#include "gpu/kernels/flash3/way_search.hpp"

namespace tilescope {
namespace {

TileShape ordered_tile(const AttentionProblem& problem) {
  return flash3_backward_shape(static_cast<int>(problem.head_dim), true).tile;
}

/// As many heads side by side as keep the device busy with so many splits.
int busy_heads(const AttentionProblem& problem, int splits) {
  const TileShape tile = ordered_tile(problem);
  const std::int64_t busy = std::min<std::int64_t>(num_n_blocks(problem.band(), tile) * splits,
                                                   num_m_blocks(problem.band(), tile) * problem.group_size() *
                                                       dq_slots(problem, tile).count);  // of a key/value head
  return static_cast<int>(
      std::min<std::int64_t>((kHopperMultiprocessors + busy - 1) / busy, problem.batch * problem.heads_kv));
}

/// Those, or as many as the forward pass has; 0: one after the other.
int ordered_swizzle(const AttentionProblem& problem, int splits) {
  // Twice as many, so that a CTA waits for fewer others.
  const int heads = static_cast<int>(
      std::min<std::int64_t>(2 * busy_heads(problem, splits), problem.batch * problem.heads_kv));
  if (!problem.masked()) return heads > 1 ? heads : 0;
  return std::max(heads, flash3_forward_swizzle(problem, flash3_forward_shape(problem).tile));
}

/// When the pass ends, its CTAs in the order in which they are issued: each waits for those before it that
/// add to the same slot of dQ. [rows x columns]
double end_in_turn(const AttentionProblem& problem, const Flash3OrderedWay& way) {
  constexpr int kEndsOfATile = 200, kSumsOfATile = 50, kPassOfSums = 200;  // rows; NOTES.md
  constexpr double kHop = 0.5;  // of a step: until the next CTA has seen that dQ is there
  const TileShape tile = ordered_tile(problem);
  const VisibleBand band = problem.band();
  const int group = static_cast<int>(problem.group_size()), q_blocks = num_m_blocks(band, tile);
  const int head_splits = head_splits_of(way.splits, group), heads_of_cta = group / head_splits;
  const SplitKeys parts = aligned_parts(way.splits / head_splits, q_blocks);
  const Grid grid{.num_blocks = num_n_blocks(band, tile),
                  .num_heads = static_cast<int>(problem.batch * problem.heads_kv) * way.splits,
                  .swizzled_heads = std::max(way.swizzled_heads, 1) * way.splits,
                  .order = TileOrder::head_swizzled};
  const double step = static_cast<double>(tile.block_m) * tile.block_n;
  const DqSlots slots = dq_slots(problem, tile);
  std::vector<double> dq(static_cast<std::size_t>(problem.batch * problem.heads * q_blocks * slots.count));
  std::vector<int> first_kv_tile;  // that a q tile sees
  for (int block = 0; block < q_blocks; ++block) first_kv_tile.push_back(kv_tiles(band, tile, block).begin);
  MultiprocessorQueue queue;
  for (int i = 0; i < static_cast<int>(grid.size()); ++i) {
    const WorkItem item = grid.item(i);
    const int share = item.head % way.splits, kv_head = item.head / way.splits;
    const int first_head = kv_head * group + share % head_splits * heads_of_cta;
    const TileRange range = parts.part_of(q_tiles(band, tile, item.block), share / head_splits);
    double now = queue.take() + (kEndsOfATile + (way.splits > 1 ? kSumsOfATile : 0)) * tile.block_n;
    for (int head = first_head; head < first_head + heads_of_cta; ++head) {
      for (int block = range.end - 1; block >= range.begin; --block) {
        const int slot = slots.slot(item.block - first_kv_tile[static_cast<std::size_t>(block)]);
        double& before = dq[(static_cast<std::size_t>(head) * q_blocks + block) * slots.count + slot];
        before = now = std::max(now + step, before + kHop * step);
      }
    }
    queue.give_back(now);
  }
  return queue.end() + (way.splits > 1 ? kPassOfSums * tile.block_n : 0);
}

/// Under a causal mask the CTA of a late kv tile has few queries of each head of its group, and waits at each
/// head for the early ones. Where the late ones come first nobody waits long, but the longest CTAs begin
/// last: that is a small part of all the work, if heads are many. Source: FlashAttention-4's deterministic
/// backward pass issues CTAs so (shortest processing time first). In a window all have as many queries, and
/// the early kv tiles of a long row would wait for all the late ones.
bool pays_shortest_first(const AttentionProblem& problem) {
  constexpr int kLeastOfAll = 5;  // longest CTAs in the work of an SM
  constexpr int kFewQTiles = 4, kFewKvTiles = 8;
  if (!problem.masked() || problem.group_size() == 1) return false;
  const TileShape tile = ordered_tile(problem);
  const VisibleBand band = problem.band();
  if (problem.windowed() && num_n_blocks(band, tile) > kFewKvTiles) return false;
  int all = 0, longest = 0;  // of a head
  for (int block = 0; block < num_n_blocks(band, tile); ++block) {
    const int steps = q_tiles(band, tile, block).count();
    all += steps;
    longest = std::max(longest, steps);
  }
  return longest >= kFewQTiles && problem.batch * problem.heads_kv * all >=
                                      std::int64_t{kLeastOfAll} * kHopperMultiprocessors * longest;
}

/// Of many steps: it waits less where each head of the group has a CTA of its own, if these fill the device,
/// and sums of dK and dV are little beside the work of many queries a key.
bool pays_a_head_a_cta(const AttentionProblem& problem) {
  constexpr std::int64_t kQueriesOfAKey = 2048;
  const std::int64_t ctas =
      problem.batch * problem.heads * num_n_blocks(problem.band(), ordered_tile(problem));
  return problem.masked() && problem.group_size() > 1 && ctas >= kHopperMultiprocessors &&
         problem.visible_pairs() >= kQueriesOfAKey * problem.batch * problem.heads * problem.seqlen_k;
}

/// The pass ends no sooner: its steps, and less than the ends of its tiles take, spread evenly.
double least_end(const AttentionProblem& problem, int splits) {
  constexpr int kLeastEnds = 100;  // rows
  const TileShape tile = ordered_tile(problem);
  const int kv_tiles = num_n_blocks(problem.band(), tile);
  std::int64_t rows = 0;  // of a query head
  for (int block = 0; block < kv_tiles; ++block)
    rows += std::int64_t{tile.block_m} * q_tiles(problem.band(), tile, block).count();
  const std::int64_t ends = std::int64_t{kLeastEnds} * kv_tiles * splits;  // of a key/value head
  return static_cast<double>(problem.batch * (problem.heads * rows + problem.heads_kv * ends)) *
         tile.block_n / kHopperMultiprocessors;
}

/// The way in which the pass ends first, a twentieth at least before any with fewer splits.
Flash3OrderedWay first_to_end(const AttentionProblem& problem, std::int64_t steps) {
  constexpr double kShareOfFewer = 0.95;        // of the time with fewer splits
  constexpr std::int64_t kManySteps = 100'000;  // of so many, many splits are not tried
  Flash3OrderedWay best;
  double first = std::numeric_limits<double>::infinity();
  for (const int splits : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}) {
    if (splits > 5 && steps > kManySteps) break;
    double limit = kShareOfFewer * first;
    if (least_end(problem, splits) > limit * (1 + 1e-9)) continue;  // no such way is better
    for (const int heads : {ordered_swizzle(problem, splits), busy_heads(problem, splits)}) {
      const Flash3OrderedWay way{splits, heads};
      const double end = end_in_turn(problem, way);
      if (end >= limit) continue;
      limit = first = end;
      best = way;
    }
  }
  return best;
}

Flash3OrderedWay choose_ordered(const AttentionProblem& problem) {
  constexpr std::int64_t kMostSteps = 1'500'000;  // that are gone through to choose
  const TileShape tile = ordered_tile(problem);
  const Flash3BackwardWay fused = flash3_backward_way(problem);
  if (!dq_slots(problem, tile).in_turn()) return {fused.splits, problem.masked() ? fused.swizzled_heads : 0};
  if (pays_shortest_first(problem)) return {1, fused.swizzled_heads, true};
  const Flash3OrderedWay whole{1, ordered_swizzle(problem, 1)};
  const std::int64_t steps =
      problem.batch * problem.heads * num_n_blocks(problem.band(), tile) * num_m_blocks(problem.band(), tile);
  if (is_fp8(problem.dtype)) return whole;
  if (steps <= kMostSteps) return first_to_end(problem, steps);
  const auto group = static_cast<int>(problem.group_size());
  return pays_a_head_a_cta(problem) ? Flash3OrderedWay{group, busy_heads(problem, group)} : whole;
}

}  // namespace

Flash3OrderedWay flash3_ordered_way(const AttentionProblem& problem) {
  return remembered<Flash3OrderedWay, choose_ordered>(problem);
}

}  // namespace tilescope
