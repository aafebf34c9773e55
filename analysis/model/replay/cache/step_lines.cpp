// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/cache/step_lines.hpp"

#include <algorithm>

namespace tilescope {

StepLines::StepLines(const TileProgram& program, const TileNumbering& numbers, const TileLines& lines)
    : numbers_(numbers) {
  const TileIndexing streamed = program.axis == Axis::q ? TileIndexing::n : TileIndexing::m;
  for (const std::vector<Operand>& operands : program.phases) {
    const bool alike = std::all_of(operands.begin(), operands.end(), [&](const Operand& operand) {
      const TensorExtent extent = program.extent(operand.tensor);
      const TensorExtent of_first = program.extent(operands[0].tensor);
      // A slot is that of who makes the step.
      return extent.indexing == streamed && extent.heads == of_first.heads && extent.splits == 1;
    });
    if (alike && !operands.empty()) add(operands, program, lines);
  }
}

void StepLines::add(const std::vector<Operand>& operands, const TileProgram& program,
                    const TileLines& lines) {
  const TensorExtent extent = program.extent(operands[0].tensor);
  const bool by_m = extent.indexing == TileIndexing::m;
  const VisibleBand band = program.problem.band();
  const TileShape accessed = program.access_tile();
  const int tiles = by_m ? num_m_blocks(band, accessed) : num_n_blocks(band, accessed);
  const auto query_heads = static_cast<int>(program.q_heads() / extent.heads);  // to one of the tensor
  phases_.push_back({operands.data(), operands[0].tensor,
                     numbers_.tile(operands[0].tensor, {{}, 0, 0, 0, 0}).number,
                     static_cast<std::int64_t>(steps_.size())});
  for (int batch = 0; batch < extent.batch; ++batch) {
    for (int head = 0; head < extent.heads; ++head) {
      for (int tile = 0; tile < tiles; ++tile) {
        const AccessGroup group{{}, batch, head * query_heads, by_m ? tile : 0, by_m ? 0 : tile};
        Step step{.asked = {}, .begin = static_cast<std::uint32_t>(touches_.size())};
        bool loads = true;
        std::int64_t count = 0;
        for (const Operand& operand : operands) {
          const NumberedTile numbered = numbers_.tile(operand.tensor, group);
          step.asked.add(operand.kind, 1, numbered.bytes);
          if (operand.kind == AccessKind::load || operand.kind == AccessKind::store) {
            step.asked.add_beside(operand.kind, numbers_.filled_bytes(operand, group));
          }
          loads = loads && operand.kind == AccessKind::load && !program.evict_first(operand.tensor);
          const LineSample::Range range = lines[numbered.number];
          count += range.count();
          if (range.count() > 0) touches_.push_back({range, operand.kind});
        }
        step.end = static_cast<std::uint32_t>(touches_.size());
        step.found_by_others = loads && count <= static_cast<std::int64_t>(lines.sample().ways());
        steps_.push_back(step);
      }
    }
  }
}

}  // namespace tilescope
