// SPDX-License-Identifier: Apache-2.0
// What a mask beside causal, window and padding is called, as people type it and records keep it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilescope {

/// What a query sees; "the band" is what causal and window leave of the matrix, and padding is hidden always.
enum class MaskKind : std::uint8_t {
  none,    // the band
  sink,    // the band, and of the first N keys those that a limit on its left side hides (arXiv:2309.17453)
  prefix,  // the band, and the first N keys
  documents,  // the band inside each of several documents side by side, which have so many tokens
  blocks,     // the band inside the blocks of keys that are listed for each block of queries; N rows a block
  tree,  // queries are the last keys, nodes of a tree, by their parents: what comes before the nodes, the
         // ancestors and itself (arXiv:2305.09781); nodes count from 1, and a root's parent is 0
  block_causal,  // the band in the blocks of N keys up to that of the diagonal
};

/// Among a rule's numbers: those behind it are of the next row.
inline constexpr std::int64_t kNextRow = -1;

/// A kind and its numbers: "sink:4", "documents:100,300,57", "blocks:64;0;0,1".
struct MaskRule {
  MaskKind kind = MaskKind::none;
  std::vector<std::int64_t> numbers = {};

  bool any() const { return kind != MaskKind::none; }
  bool operator==(const MaskRule&) const = default;
};

/// As it is typed; nothing of none.
std::string to_string(const MaskRule& rule);
/// The same with the first numbers of many.
std::string describe(const MaskRule& rule);
/// @throws BadInput for what is no rule; whether it fits a problem says validate()
MaskRule parse_mask(const std::string& field, const std::string& text);

}  // namespace tilescope
