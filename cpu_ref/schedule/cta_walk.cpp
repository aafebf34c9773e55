// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/cta_walk.hpp"

#include <algorithm>

#include "cpu_ref/schedule/sum_slots.hpp"

namespace tilescope {

CtaWalk::CtaWalk(const TileProgram& program, std::int64_t cta)
    : program_(&program), work_(program.work(cta)), stage_(Stage::init) {
  block_ = work_.first_block;
  if (!program.whole_head && program.init.empty()) start_block(block_);
}

void CtaWalk::start_block(int block) {
  block_ = block;
  if (block_ == work_.end_block) {
    stage_ = Stage::retired;
    return;
  }
  inner_ = program_->phases.empty() ? TileRuns{} : program_->inner_tiles(work_, block_);
  slices_ = program_->phases.empty() ? TileRuns{} : program_->inner_slices(work_, block_);
  head_ = 0;
  phase_ = 0;
  step_ = 0;
  stage_ = Stage::block_start;
}

AccessGroup CtaWalk::group(const std::vector<Operand>& operands, int head, int inner) const {
  const bool q_axis = program_->axis == Axis::q;
  return {operands, work_.batch, work_.first_head + head, q_axis ? block_ : inner, q_axis ? inner : block_};
}

/// Which partial result the epilogue stores, or slot of sums.
int CtaWalk::part() const {
  if (program_->stores_partials()) return work_.split;
  return slots_of(*program_, TensorName::dk_accum) > 1 ? sum_slot_of(*program_, work_) : -1;
}

/// One tile of init: operand after operand, its heads, its tiles.
AccessGroup CtaWalk::next_init() {
  const Operand& operand = program_->init[init_operand_];
  const bool by_n = tensor_extent(program_->problem, operand.tensor).indexing == TileIndexing::n;
  const VisibleBand band = program_->problem.band();
  const int tiles = by_n ? num_n_blocks(band, program_->tile) : num_m_blocks(band, program_->tile);
  const int tile = step_, head = head_;
  if (++step_ == tiles) {
    step_ = 0;
    if (++head_ == (by_n ? 1 : program_->heads_per_cta())) {
      head_ = 0;
      ++init_operand_;
    }
  }
  return {{&operand, 1}, work_.batch, work_.first_head + head, by_n ? -1 : tile, by_n ? tile : -1};
}

/// One slice of the current step, and on to what comes after it.
AccessGroup CtaWalk::next_slice() {
  const TileProgram& program = *program_;
  const int slices = program.diagonal_slices;
  const int first = program.inner_tile(work_, inner_, block_, step_) * slices;
  const int begin = std::max(first, slices_.begin_tile()), end = std::min(first + slices, slices_.end_tile());
  const AccessGroup group = this->group(program.phases[phase_], head_, begin + slice_);
  if (++slice_ < end - begin) return group;
  slice_ = 0;
  if (++step_ == inner_.count()) {
    step_ = 0;
    if (++phase_ == program.phases.size()) {
      phase_ = 0;
      if (++head_ == work_.end_head - work_.first_head) stage_ = Stage::block_end;
    }
  }
  return group;
}

bool CtaWalk::next(AccessGroup& out) {
  const TileProgram& program = *program_;
  out.operands = {};
  while (out.operands.empty() && stage_ != Stage::retired) {
    switch (stage_) {
      case Stage::init:
        if (program.whole_head && init_operand_ < program.init.size()) {
          out = next_init();
        } else {
          if (!program.whole_head) out = group(program.init, 0, -1);
          start_block(block_);
        }
        break;
      case Stage::block_start:
        if (program.has_prologue(work_, block_)) out = group(program.prologue, 0, -1);
        stage_ = inner_.empty() ? Stage::block_end : Stage::steps;
        break;
      case Stage::steps:
        out = next_slice();
        break;
      case Stage::block_end:
        out = group(program.epilogue, 0, part());
        start_block(block_ + 1);
        break;
      case Stage::retired:
        break;
    }
  }
  return !out.operands.empty();
}

bool CtaWalk::next(std::vector<TileAccess>& accesses) {
  AccessGroup group;
  accesses.clear();
  std::vector<AccessGroup> slices;
  do {
    if (!next(group)) return false;
    slices.push_back(group);
  } while (slice_ > 0);
  for (const Operand& operand : group.operands) {
    for (const AccessGroup& at : slices) {
      accesses.push_back(program_->access(operand, at.batch, at.head, at.m_block, at.n_block));
    }
  }
  return true;
}

}  // namespace tilescope
