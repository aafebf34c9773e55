// SPDX-License-Identifier: Apache-2.0
// Kernels are compiled for certain tile shapes; this says which a user's choice would need.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Half a sentence when `asked` is none of the shapes that a pass is compiled for, else nothing.
inline std::optional<std::string> tile_refusal(const AttentionProblem& problem, std::string_view pass,
                                               TileShape asked, const std::vector<TileShape>& compiled) {
  const auto text = [](TileShape t) { return std::to_string(t.block_m) + "x" + std::to_string(t.block_n); };
  std::string shapes;
  for (const TileShape& tile : compiled) {
    if (tile == asked) return std::nullopt;
    shapes += (shapes.empty() ? "" : " or ") + text(tile);
  }
  return "is compiled for " + std::string(pass) + " tiles of " + shapes + " at head_dim " +
         std::to_string(problem.head_dim) + ", not " + text(asked);
}

/// Half a sentence when `options` ask for other tile shapes than the compiled ones, else nothing.
inline std::optional<std::string> tile_refusal(const AttentionProblem& problem, Direction direction,
                                               const ProgramOptions& options,
                                               const ProgramOptions& compiled) {
  const auto differs = [&](TileShape asked, TileShape built, const char* pass) {
    return tile_refusal(problem, pass, asked, {built});
  };
  if (direction == Direction::forward) {
    return differs(options.forward_tile, compiled.forward_tile, "forward");
  }
  if (auto refusal = differs(options.backward_tile, compiled.backward_tile, "backward")) return refusal;
  if (options.backward != BackwardOrder::split) return std::nullopt;
  return differs(options.dq_tile, compiled.dq_tile, "dq");
}

}  // namespace tilescope
