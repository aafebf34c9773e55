// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/tiled_pass.hpp"

namespace tilescope {

std::string_view to_string(TiledPass pass) {
  constexpr std::string_view kNames[] = {"forward", "backward", "dq"};
  return kNames[static_cast<std::size_t>(pass)];
}

TileShape& tile_of(ProgramOptions& options, TiledPass pass) {
  if (pass == TiledPass::forward) return options.forward_tile;
  return pass == TiledPass::backward ? options.backward_tile : options.dq_tile;
}

}  // namespace tilescope
