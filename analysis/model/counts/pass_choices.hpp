// SPDX-License-Identifier: Apache-2.0
// What a program was told, as a record keeps it.
#pragma once

#include "analysis/records/run_record.hpp"
#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Adds the choices of a program to those of a pass, which may stand for several programs.
void note_choices(PassChoices& choices, const TileProgram& program);

}  // namespace tilescope
