// SPDX-License-Identifier: Apache-2.0
// A launch in words, for a log.
#pragma once

#include <string>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// "dkdvdq of B1 H8 N1024 D64 fp16, tile 64x128, 64 CTAs".
inline std::string launch_text(const TileProgram& program) {
  return std::string(to_string(program.name)) + " of " + describe(program.problem) + ", tile " +
         std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n) + ", " +
         std::to_string(program.num_ctas()) + " CTAs";
}

}  // namespace tilescope
