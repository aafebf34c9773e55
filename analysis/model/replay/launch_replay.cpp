// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/launch_replay.hpp"

#include <algorithm>
#include <cmath>

namespace tilescope {

LaunchReplay::LaunchReplay(const TileProgram& program, const TileNumbering& numbers, TileLines& lines,
                           const StepLines* steps, const SplitL2Shape& shape, bool keeps_all)
    : lines_(lines),
      steps_(steps),
      keeps_all_(keeps_all),
      l2_(lines.sample(), shape.dirty_ways),
      tiles_(program, numbers),
      seen_(numbers.num_tiles()),
      made_again_(steps ? steps->size() : 0, kNotYet) {}

void LaunchReplay::access(const CtaRun& run, int partition) {
  const std::int64_t step = steps_ ? steps_->find(run.group) : StepLines::kNone;
  if (step == StepLines::kNone) return make(run, partition);
  std::int64_t& again = made_again_[static_cast<std::size_t>(step)];
  if (again == kNotYet) {
    again = 0;
    return make(run, partition);
  }
  again += run.ctas;
  if (!keeps_all_) make_again((*steps_)[step], run.ctas, partition);
}

/// What changes nothing in the L2 leaves it as the CTA before did, and so do those after it, which do the
/// same.
void LaunchReplay::make_again(const StepLines::Step& step, int times, int partition) {
  for (int cta = 0; cta < times; ++cta) {
    const std::int64_t changes = l2_.changes();
    for (const StepLines::Touch& touch : steps_->touches(step)) {
      read_again_ += l2_.access(touch.kind, touch.lines, partition);
    }
    if (step.found_by_others || (cta > 0 && l2_.changes() == changes)) return;
  }
}

void LaunchReplay::make(const CtaRun& run, int partition) {
  tiles_.set(run);
  asked_.add(tiles_);
  for (int cta = 0; cta < run.ctas; ++cta) {
    const std::int64_t changes = l2_.changes();
    make_of(cta, run, partition);
    if (tiles_.same() && cta > 0 && l2_.changes() == changes) return;
  }
}

void LaunchReplay::make_of(int cta, const CtaRun& run, int partition) {
  const AccessGroup group = lines_.placed_at_once() ? AccessGroup{} : run.group_of(cta, tiles_.owned());
  for (const OperandTiles& operand : tiles_.operands()) {
    access(operand, operand.of(cta, run.ctas), group, partition);
  }
}

void LaunchReplay::access(const OperandTiles& operand, NumberedTile tile, const AccessGroup& group,
                          int partition) {
  const Seen seen = seen_[tile.number];
  const Seen will_be = seen | kTouched | (operand.kind == AccessKind::load ? 0 : kWritten);
  const bool first = seen == 0;
  if (seen != will_be) {
    seen_[tile.number] = will_be;
    if (first && !lines_.placed_at_once()) lines_.place(operand.tensor, group, tile.number);
    const bool begins = first && operand.kind == AccessKind::store_then_reduce;
    if (begins) asked_.begin_sums(1, tile.bytes);
    if (first && !begins && operand.kind != AccessKind::store) first_read_bytes_ += tile.bytes;
    if ((will_be & ~seen) & kWritten) {
      written_bytes_ += tile.bytes;
      written_lines_ += lines_[tile.number].count();
    }
  }
  if (keeps_all_) return;
  const LineSample::Range lines = lines_[tile.number];
  if (lines.count() == 0) return;  // none of them in the sample
  const std::int64_t missed = l2_.access(operand.kind, lines, partition, first);
  if (!first) read_again_ += missed;
}

SmTraffic LaunchReplay::asked() const {
  SmTraffic asked = asked_;
  for (std::size_t step = 0; step < made_again_.size(); ++step) {
    asked.add((*steps_)[static_cast<std::int64_t>(step)].asked, std::max<std::int64_t>(0, made_again_[step]));
  }
  return asked;
}

std::int64_t LaunchReplay::bytes_of(std::int64_t lines) const {
  return std::llround(lines_.sample().bytes_per_line() * static_cast<double>(lines));
}

}  // namespace tilescope
