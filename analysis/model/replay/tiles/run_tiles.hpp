// SPDX-License-Identifier: Apache-2.0
// The tiles that CTAs in step touch at once, by number.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/model/replay/ctas/cta_schedule.hpp"
#include "analysis/model/replay/tiles/tile_numbering.hpp"

namespace tilescope {

/// Those of one operand: `first`, and for each further CTA the one `stride` on.
struct OperandTiles {
  AccessKind kind;
  TensorName tensor;
  NumberedTile first;
  std::uint32_t stride = 0;        // 0: all touch the same
  std::int64_t bytes_of_last = 0;  // the last CTA's tile may be cut by the end of the matrix
  std::int64_t filled_bytes = 0;   // of all CTAs together, see Boxes

  NumberedTile of(int cta, int ctas) const {
    return {first.number + static_cast<std::uint32_t>(cta) * stride,
            cta + 1 == ctas ? bytes_of_last : first.bytes};
  }
  /// Bytes of all CTAs together.
  std::int64_t bytes(int ctas) const { return (ctas - 1) * first.bytes + bytes_of_last; }
};

/// Those of all operands.
class RunTiles {
 public:
  RunTiles(const TileProgram& program, const TileNumbering& numbers)
      : owned_(program.axis), numbers_(&numbers) {}

  void set(const CtaRun& run) {
    ctas_ = run.ctas;
    same_ = true;
    operands_.resize(run.group.operands.size());
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = run.group.operands[i];
      OperandTiles& tiles = operands_[i];
      tiles.kind = operand.kind;
      tiles.tensor = operand.tensor;
      tiles.first = numbers_->tile(operand.tensor, run.group);
      tiles.stride = 0;
      tiles.bytes_of_last = tiles.first.bytes;
      tiles.filled_bytes = 0;
    }
    if (run.ctas > 1) set_last(run.group_of(run.ctas - 1, owned_));
    if (numbers_->has_boxes()) set_filled(run);
  }

  std::span<const OperandTiles> operands() const { return operands_; }
  Axis owned() const { return owned_; }
  int ctas() const { return ctas_; }
  /// Whether every CTA touches the same tiles.
  bool same() const { return same_; }

 private:
  void set_last(const AccessGroup& group) {
    for (OperandTiles& tiles : operands_) {
      const NumberedTile last = numbers_->tile(tiles.tensor, group);
      if (last.number == tiles.first.number) continue;
      tiles.stride = (last.number - tiles.first.number) / static_cast<std::uint32_t>(ctas_ - 1);
      tiles.bytes_of_last = last.bytes;
      same_ = false;
    }
  }

  void set_filled(const CtaRun& run) {
    for (OperandTiles& tiles : operands_) {
      if (tiles.kind != AccessKind::load && tiles.kind != AccessKind::store) continue;
      for (int cta = 0; cta < (tiles.stride == 0 ? 1 : ctas_); ++cta) {
        tiles.filled_bytes += numbers_->filled_bytes({tiles.tensor, tiles.kind}, run.group_of(cta, owned_));
      }
      if (tiles.stride == 0) tiles.filled_bytes *= ctas_;
    }
  }

  Axis owned_;
  const TileNumbering* numbers_;
  std::vector<OperandTiles> operands_;
  int ctas_ = 1;
  bool same_ = true;
};

}  // namespace tilescope
