// SPDX-License-Identifier: Apache-2.0
// The accesses of a tile program, CTA by CTA, in the order in which they are issued.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Operands that one step of a CTA touches, all at the same tile of TileProgram::access_tile(). -1 stands for
/// no particular tile: none of the operands is cut along that axis.
struct AccessGroup {
  std::span<const Operand> operands;
  int batch = 0;
  int head = 0;  // query head
  int m_block = -1;
  int n_block = -1;  // of partial results the split
};

/// Walks the accesses of one CTA, one group (a tile of init, prologue, a slice of a step, epilogue) at a
/// time, so that a caller can interleave many CTAs.
class CtaWalk {
 public:
  CtaWalk(const TileProgram& program, std::int64_t cta);
  /// Replaces `out` by the next group, which has operands. @return false when the CTA has retired.
  bool next(AccessGroup& out);
  /// The same as accesses, all slices of a step at once: those of one operand, then those of the next.
  bool next(std::vector<TileAccess>& accesses);

 private:
  enum class Stage : std::uint8_t { init, block_start, steps, block_end, retired };
  void start_block(int block);
  AccessGroup group(const std::vector<Operand>& operands, int head, int inner) const;
  int part() const;
  AccessGroup next_init();
  AccessGroup next_slice();

  const TileProgram* program_;
  CtaWork work_;
  int head_ = 0;  // within the group of query heads
  int block_ = 0;
  TileRuns inner_;   // tiles
  TileRuns slices_;  // of these tiles
  std::size_t phase_ = 0;
  int step_ = 0;
  int slice_ = 0;  // within the step; 0 before and after it
  std::size_t init_operand_ = 0;
  Stage stage_;
};

/// Calls visit(TileAccess) for every access of CTA number `cta` in issue order.
template <typename Visitor>
void for_each_access(const TileProgram& program, std::int64_t cta, Visitor&& visit) {
  CtaWalk walk(program, cta);
  std::vector<TileAccess> group;
  while (walk.next(group)) {
    for (const TileAccess& access : group) visit(access);
  }
}

/// Calls visit(TileAccess) for every access of the pass, CTA after CTA.
template <typename Visitor>
void for_each_access(const TileProgram& program, Visitor&& visit) {
  for (std::int64_t cta = 0; cta < program.num_ctas(); ++cta) for_each_access(program, cta, visit);
}

}  // namespace tilescope
