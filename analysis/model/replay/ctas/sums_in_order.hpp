// SPDX-License-Identifier: Apache-2.0
// Who may add to a sum in memory, where kv tiles wait for others that add to the same q tile.
#pragma once

#include <algorithm>
#include <vector>

#include "cpu_ref/schedule/cta_walk.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

/// One counter for each slot of each q tile of each query head: kv tiles that have added to it. In an ordered
/// pass a kv tile waits for all in front of it in its slot, else for the first, which stores.
class SumsInOrder {
 public:
  /// Precondition: program.waits_for_sums(). The program must outlive this.
  explicit SumsInOrder(const TileProgram& program)
      : program_(&program),
        slots_(dq_slots(program)),
        heads_(static_cast<std::size_t>(program.problem.heads)),
        q_tiles_(static_cast<std::size_t>(num_m_blocks(program.problem.band(), program.access_tile()))),
        counts_(static_cast<std::size_t>(program.problem.batch) * heads_ * q_tiles_ *
                static_cast<std::size_t>(slots_.count)) {}

  /// Whether the step that makes the accesses need not wait.
  bool may_add(const AccessGroup& group) const {
    if (!adds(group)) return true;
    const int before = kv_tiles_before(group);
    const int have = counts_[index(group, before)];
    return program_->ordered ? have >= slots_.before_in_slot(before) : before == 0 || have > 0;
  }
  /// The step is made by so many CTAs.
  void add(const AccessGroup& group, int ctas) {
    if (!adds(group)) return;
    if (slots_.count == 1) counts_[index(group, 0)] += ctas;
    for (int cta = 0; slots_.count > 1 && cta < ctas; ++cta)
      ++counts_[index(group, kv_tiles_before(group) + cta)];
  }

 private:
  static bool adds(const AccessGroup& group) {
    return std::ranges::any_of(group.operands, [](const Operand& operand) {
      return operand.tensor == TensorName::dq_accum && reduces(operand.kind);
    });
  }
  int kv_tiles_before(const AccessGroup& group) const {
    return program_->kv_tiles_before(group.batch, group.m_block, group.n_block);
  }
  std::size_t index(const AccessGroup& group, int before) const {
    const std::size_t q_tile =
        (static_cast<std::size_t>(group.batch) * heads_ + static_cast<std::size_t>(group.head)) * q_tiles_ +
        static_cast<std::size_t>(group.m_block);
    return q_tile * static_cast<std::size_t>(slots_.count) + static_cast<std::size_t>(slots_.slot(before));
  }

  const TileProgram* program_;
  DqSlots slots_;
  std::size_t heads_, q_tiles_;
  std::vector<int> counts_;
};

}  // namespace tilescope
