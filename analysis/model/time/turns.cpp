// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/turns.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <vector>

#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {
namespace {

/// When each sum was last added to, by tile of a head.
class LastAdded {
 public:
  LastAdded(std::int64_t heads, int tiles)
      : tiles_(tiles), clocks_(static_cast<std::size_t>(heads) * static_cast<std::size_t>(tiles)) {}
  /// When what is there at `ready` has been added, behind those in front. @param takes  by itself
  double add(std::int64_t head, int tile, double ready, double takes, double seen) {
    double& last = clocks_[static_cast<std::size_t>(head * tiles_ + tile)];
    return last = std::max(ready, last > 0 ? last + seen : 0) + takes;
  }

 private:
  std::int64_t tiles_;
  std::vector<double> clocks_;
};

/// The steps of one CTA that begins its first one at `now`, and when it has made the last.
class OrderedCtas {
 public:
  OrderedCtas(const TileProgram& program, const CtaClocks& clocks)
      : program_(program),
        clocks_(clocks),
        slots_(dq_slots(program)),
        dq_(program.problem.batch * program.problem.heads * slots_.count,
            num_m_blocks(program.problem.band(), program.tile)) {}

  double end_of(const CtaWork& work, double now) {
    const int block = work.first_block;
    const TileRuns tiles = program_.inner_tiles(work, block);
    if (tiles.empty()) return now + clocks_.end;  // of zeros
    now += clocks_.begin;
    double sent = now;  // what the step before has computed, which makes room for more
    for (int head = work.first_head; head < work.end_head; ++head) {
      for (int step = 0; step < tiles.count(); ++step) {
        const int q_tile = program_.inner_tile(work, tiles, block, step);
        const double made = clocks_.between + (is_full(tiles, q_tile) ? 0 : clocks_.masked);
        now = std::max(now + made, sent);
        const std::int64_t query_head = work.batch * program_.problem.heads + head;
        sent = dq_.add(query_head * slots_.count + slot(work, q_tile), q_tile, now, clocks_.step.out,
                       clocks_.seen);
      }
    }
    return sent + clocks_.end;
  }

 private:
  int slot(const CtaWork& work, int q_tile) const {
    return slots_.count == 1 ? 0
                             : slots_.slot(program_.kv_tiles_before(work.batch, q_tile, work.first_block));
  }
  static bool is_full(const TileRuns& tiles, int tile) {
    return std::ranges::any_of(tiles.runs(), [tile](const TileRange& range) {
      return range.full_begin <= tile && tile < range.full_end;
    });
  }

  const TileProgram& program_;
  const CtaClocks& clocks_;
  DqSlots slots_;
  LastAdded dq_;
};

}  // namespace

double end_in_turn(const TileProgram& program, std::int64_t slots, const CtaClocks& clocks) {
  OrderedCtas ctas(program, clocks);
  // In the order in which they are issued: those in front have been.
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (std::int64_t slot = 0; slot < slots; ++slot) free.push(0);
  double last = 0;
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) {
    const double end = ctas.end_of(program.work(cta), free.top());
    free.pop();
    free.push(end);
    last = std::max(last, end);
  }
  return last;
}

}  // namespace tilescope
