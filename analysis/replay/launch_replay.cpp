// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/launch_replay.hpp"

#include <cmath>

namespace tilescope {

/// Where all CTAs of a run touch the same tiles, the second finds its loads beside it. One that changes
/// nothing in the L2 leaves it as the one before did, and so do those after it, which do the same.
void LaunchReplay::access(const CtaRun& run, const RunTiles& tiles, int partition) {
  if (!tiles.same()) {
    for (int cta = 0; cta < run.ctas; ++cta) access_of(cta, run, tiles, partition);
    return;
  }
  access_of(0, run, tiles, partition);
  if (run.ctas == 1 || found_by_others(tiles)) return;
  for (int cta = 1; cta < run.ctas; ++cta) {
    const std::int64_t changes = l2_.changes();
    access_of(cta, run, tiles, partition);
    if (l2_.changes() == changes) return;
  }
}

/// Whether what one CTA has touched is found by others as the first has left it: loads alone, of no more
/// lines than fit a set.
bool LaunchReplay::found_by_others(const RunTiles& tiles) const {
  std::int64_t lines = 0;
  for (const OperandTiles& operand : tiles.operands()) {
    if (operand.kind != AccessKind::load) return false;
    lines += lines_[operand.first.number].count();
  }
  return lines <= static_cast<std::int64_t>(lines_.sample().ways());
}

void LaunchReplay::access_of(int cta, const CtaRun& run, const RunTiles& tiles, int partition) {
  const AccessGroup group = lines_.placed_at_once() ? AccessGroup{} : run.group_of(cta, tiles.owned());
  for (const OperandTiles& operand : tiles.operands()) {
    access(operand, operand.of(cta, run.ctas), group, partition);
  }
}

void LaunchReplay::access(const OperandTiles& operand, NumberedTile tile, const AccessGroup& group,
                          int partition) {
  const Seen seen = tiles_[tile.number];
  const Seen will_be = seen | kTouched | (operand.kind == AccessKind::load ? 0 : kWritten);
  const bool first = seen == 0;
  if (seen != will_be) {
    tiles_[tile.number] = will_be;
    if (first && !lines_.placed_at_once()) lines_.place(operand.tensor, group, tile.number);
    if (first && operand.kind != AccessKind::store) first_read_bytes_ += tile.bytes;
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

std::int64_t LaunchReplay::bytes_of(std::int64_t lines) const {
  return std::llround(lines_.sample().bytes_per_line() * static_cast<double>(lines));
}

}  // namespace tilescope
