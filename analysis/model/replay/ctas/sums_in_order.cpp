// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/ctas/sums_in_order.hpp"

#include <algorithm>

namespace tilescope {

SumsInOrder::SumsInOrder(const TileProgram& program)
    : program_(&program),
      slots_(dq_slots(program)),
      heads_(static_cast<std::size_t>(program.problem.heads)),
      q_tiles_(static_cast<std::size_t>(num_m_blocks(program.problem.band(), program.access_tile()))),
      counts_(static_cast<std::size_t>(program.problem.batch) * heads_ * q_tiles_ *
              static_cast<std::size_t>(slots_.count)) {}

bool SumsInOrder::adds(const AccessGroup& group) {
  return std::any_of(group.operands.begin(), group.operands.end(), [](const Operand& operand) {
    return operand.tensor == TensorName::dq_accum && reduces(operand.kind);
  });
}

}  // namespace tilescope
