// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/pass_choices.hpp"

namespace tilescope {

void note_choices(PassChoices& choices, const TileProgram& program) {
  if (program.diagonal_slices > 1) choices.diagonal_slices = program.diagonal_slices;
  if (program.fp8_sums != Fp8Sums::fp32) choices.fp8_sums = to_string(program.fp8_sums);
  choices.ordered |= program.ordered;
  if (program.dq_start != DqStart::cleared) choices.dq_start = to_string(program.dq_start);
}

}  // namespace tilescope
