// SPDX-License-Identifier: Apache-2.0
// What a tile shape can be chosen for.
#pragma once

#include <string_view>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// A direction, or the dq pass of the split backward.
enum class TiledPass : std::uint8_t { forward, backward, dq };
inline constexpr TiledPass kTiledPasses[] = {TiledPass::forward, TiledPass::backward, TiledPass::dq};

std::string_view to_string(TiledPass pass);

/// The tile that `options` give the pass.
TileShape& tile_of(ProgramOptions& options, TiledPass pass);

}  // namespace tilescope
