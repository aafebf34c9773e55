// SPDX-License-Identifier: Apache-2.0
// The steps of a pass that are made again and again, as the sampled lines that each touches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/model/replay/cache/tile_lines.hpp"
#include "analysis/model/replay/sm_traffic.hpp"

namespace tilescope {

/// Steps whose operands are all cut alike, along the axis that CTAs stream: whichever CTA makes one touches
/// the same tiles.
class StepLines {
 public:
  /// Lines of one operand.
  struct Touch {
    LineSample::Range lines;
    AccessKind kind;
  };
  struct Step {
    SmTraffic asked;
    std::uint32_t begin = 0, end = 0;  // of its touches
    /// When a CTA has made it, others beside the same partition find all as that one has left it: loads
    /// alone, of no more lines than fit a set, of which none is to go first.
    bool found_by_others = false;
  };
  static constexpr std::int64_t kNone = -1;

  /// @param lines  placed at once; all must outlive this
  StepLines(const TileProgram& program, const TileNumbering& numbers, const TileLines& lines);

  /// The number of the step that touches `group`; kNone if it is none of these.
  std::int64_t find(const AccessGroup& group) const {
    for (const Phase& phase : phases_) {
      if (phase.operands != group.operands.data()) continue;
      return phase.first_step + numbers_.tile(phase.tensor, group).number - phase.first_tile;
    }
    return kNone;
  }
  const Step& operator[](std::int64_t step) const { return steps_[static_cast<std::size_t>(step)]; }
  std::span<const Touch> touches(const Step& step) const {
    return std::span(touches_).subspan(step.begin, step.end - step.begin);
  }
  std::size_t size() const { return steps_.size(); }

 private:
  struct Phase {
    const Operand* operands;
    TensorName tensor;  // of the first; the tiles of the others have the same place among theirs
    std::uint32_t first_tile;
    std::int64_t first_step;
  };
  void add(const std::vector<Operand>& operands, const TileProgram& program, const TileLines& lines);

  const TileNumbering& numbers_;
  std::vector<Phase> phases_;
  std::vector<Step> steps_;
  std::vector<Touch> touches_;
};

}  // namespace tilescope
