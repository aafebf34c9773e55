// SPDX-License-Identifier: Apache-2.0
// A launch in words, for a log.
#pragma once

#include <string>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// " 8 warps 3 stages", as far as they were asked for.
inline std::string launch_text(const PassLaunch& launch) {
  std::string text;
  if (launch.warps > 0) text.append(" ").append(std::to_string(launch.warps)).append(" warps");
  if (launch.stages > 0) text.append(" ").append(std::to_string(launch.stages)).append(" stages");
  return text;
}

/// "dkdvdq of B1 H8 N1024 D64 fp16, tile 64x128, 64 CTAs".
inline std::string launch_text(const TileProgram& program) {
  return std::string(to_string(program.name)) + " of " + describe(program.problem) + ", tile " +
         std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n) +
         launch_text(program.launch) + ", " + std::to_string(program.num_ctas()) + " CTAs";
}

}  // namespace tilescope
