// SPDX-License-Identifier: Apache-2.0
// A tile program as a text, so that somebody's own schedule is counted, simulated and explained without C++:
//
//   tile 128 x 64
//   forward
//     pass forward
//       products 2
//       cta m h              a CTA for each q tile m and query head h (of each batch entry)
//         load q
//         for n              the kv tiles that the mask leaves something of; `for all n`: every one
//           load k, v
//         store out, lse
//
// Indentation nests; # begins a comment. `cta n hkv` owns kv tiles and holds `for h`, the query heads of its
// group; `cta h` and `cta hkv` own a whole head. A pass has loads, one or more loops over the other axis, and
// stores, which are any of load, store, reduce. tile, order, scan and `boxes TENSOR ROWS PANEL_BYTES` stand
// in a pass, or before all passes. examples/programs/ has the algorithms of the papers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// A pass as it was written, of no problem yet.
struct TextPass {
  Direction direction = Direction::forward;
  TileProgram program;
  TileOrder order = TileOrder::row_major;
  int line = 0;
  std::map<TensorName, int> loads, stores;  // lines on which tensors are first loaded; stored or reduced
};

struct ProgramText {
  std::string source;  // what error messages call it
  std::vector<TextPass> passes;

  bool has(Direction direction) const;
  /// The passes of a direction on a problem, in launch order.
  /// @throws BadInput, with source and line, where they are not consistent: a tile of a result that is never
  /// stored, a tensor that is loaded before anything stores it
  std::vector<TileProgram> programs(Direction direction, const AttentionProblem& problem) const;
};

/// @throws BadInput, with source and line, for what is no such text, and for loads and stores beyond what a
/// CTA has a tile of
ProgramText parse_program_text(const std::string& source, const std::string& text);

}  // namespace tilescope
