// SPDX-License-Identifier: Apache-2.0
// Splits and order of the CTAs of flash3's ordered backward pass. A kv tile adds to a slot of a q tile's dQ
// after those in front of it: CTAs that run at once should have other heads, or other q tiles, and a slot
// keeps no more of them busy than it has q tiles. Where each kv tile has a slot of its own, nobody waits.
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

/// As many heads side by side as keep the device busy with so many splits, or as the forward pass has; 0: one
/// after the other.
int ordered_swizzle(const AttentionProblem& problem, int splits) {
  const TileShape tile = ordered_tile(problem);
  const std::int64_t busy = std::min<std::int64_t>(num_n_blocks(problem.band(), tile) * splits,
                                                   num_m_blocks(problem.band(), tile) * problem.group_size() *
                                                       dq_slots(problem, tile).count);  // of a key/value head
  const std::int64_t heads =
      std::min<std::int64_t>((kHopperMultiprocessors + busy - 1) / busy, problem.batch * problem.heads_kv);
  if (!problem.masked()) return heads > 1 ? static_cast<int>(heads) : 0;
  return std::max(static_cast<int>(heads),
                  flash3_forward_swizzle(problem, flash3_forward_shape(problem).tile));
}

/// When the pass ends, its CTAs in the order in which they are issued: each waits for those before it that
/// add to the same slot of dQ. [rows x columns]
double end_in_turn(const AttentionProblem& problem, const Flash3BackwardWay& way) {
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

Flash3BackwardWay choose_ordered(const AttentionProblem& problem) {
  constexpr double kShareOfWhole = 0.95;  // of the time of unshared tiles, which sharing is to take
  constexpr std::int64_t kManySteps = 100'000, kMostSteps = 1'500'000;  // of many none ends much later
  const TileShape tile = ordered_tile(problem);
  if (!dq_slots(problem, tile).in_turn()) {
    const Flash3BackwardWay fused = flash3_backward_way(problem);
    return {fused.splits, problem.masked() ? fused.swizzled_heads : 0};
  }
  Flash3BackwardWay best{1, ordered_swizzle(problem, 1)};
  const std::int64_t tiles = problem.batch * problem.heads_kv * num_n_blocks(problem.band(), tile);
  const std::int64_t steps = tiles * problem.group_size() * num_m_blocks(problem.band(), tile);
  if (is_fp8(problem.dtype) || tiles >= 2 * kHopperMultiprocessors || steps > kMostSteps) return best;
  double first = kShareOfWhole * end_in_turn(problem, best);
  for (const int splits : {2, 3, 4, 5, 6, 7, 8, 12, 16}) {
    if (splits > 5 && steps > kManySteps) break;
    const Flash3BackwardWay way{splits, ordered_swizzle(problem, splits)};
    const double end = end_in_turn(problem, way);
    if (end >= first) continue;
    first = end;
    best = way;
  }
  return best;
}

}  // namespace

Flash3BackwardWay flash3_ordered_way(const AttentionProblem& problem) {
  return remembered<Flash3BackwardWay, choose_ordered>(problem);
}

}  // namespace tilescope
