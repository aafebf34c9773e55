// SPDX-License-Identifier: Apache-2.0
// The element counts of the papers' algorithms as printed, one head, no mask, every element of the same
// width: what TileScope's own closed forms are held against.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tilescope {

/// Self-attention of one head, cut into blocks.
struct PaperShape {
  std::int64_t seqlen = 1;     // N
  std::int64_t head_dim = 1;   // d
  std::int64_t q_blocks = 1;   // Tr = ceil(N / Br)
  std::int64_t kv_blocks = 1;  // Tc = ceil(N / Bc)
};

struct ElementCount {
  std::int64_t reads = 0;
  std::int64_t writes = 0;
  std::int64_t total() const { return reads + writes; }
  bool operator==(const ElementCount&) const = default;
};

/// One algorithm's slow-memory accesses. [elements]
struct PaperCount {
  std::string_view name;
  std::string_view source;
  std::string_view reads, writes;  // the formulas, for people
  ElementCount (*count)(const PaperShape&);
};

/// Names: standard-forward, standard-backward, flash1-forward, flash1-forward-elided, flash1-backward,
/// flash1-backward-elided, flash2-forward, flash2-backward, flash2-backward-atomic, compulsory-forward,
/// compulsory-backward.
std::span<const PaperCount> paper_counts();

/// @throws BadInput if no count has that name
const PaperCount& find_paper_count(std::string_view name);

}  // namespace tilescope
