// SPDX-License-Identifier: Apache-2.0
// How the cases of a sweep are listed: what their parts share.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "cpu_ref/judge/verify_cases.hpp"

namespace tilescope {

struct MaskSides {
  bool causal = false;
  std::int64_t left = -1, right = -1;
};

struct Grouping {
  std::int64_t batch, heads, heads_kv;
};

inline constexpr Grouping kGroupings[] = {{1, 2, 2}, {2, 4, 2}, {1, 3, 1}};
inline constexpr ElementType kGradientTypes[] = {ElementType::fp32, ElementType::fp16, ElementType::bf16};
inline constexpr ElementType kFp8Types[] = {ElementType::fp8e4m3, ElementType::fp8e5m2};

/// No mask, causal, windows narrower and wider than a tile, and a window whose edges are those of tiles.
inline std::array<MaskSides, 5> masks_for(TileShape tile) {
  return {MaskSides{}, MaskSides{.causal = true}, MaskSides{.left = tile.block_n / 2 + 1, .right = 3},
          MaskSides{.causal = true, .left = tile.block_n + 2},
          MaskSides{.left = tile.block_n, .right = tile.block_n}};
}

class CaseList {
 public:
  CaseList(TileShape tile, SweepSize size, std::int64_t head_dim)
      : tile_(tile), size_(size), head_dim_(head_dim) {}

  /// A problem of several ragged tiles a side.
  VerifyCase several_tiles(const Grouping& group = kGroupings[0]) const {
    VerifyCase c;
    c.tile = tile_;
    c.problem = {.batch = group.batch,
                 .heads = group.heads,
                 .heads_kv = group.heads_kv,
                 .seqlen_q = 2 * tile_.block_m + 3,
                 .seqlen_k = 2 * tile_.block_n + 5,
                 .head_dim = head_dim_};
    return c;
  }
  /// Adds the case; a sweep keeps every `keep_one_in`-th of those offered to it.
  void add(VerifyCase c, const MaskSides& mask, int quick_keeps_one_in = 4) {
    const int keep_one_in = size_ == SweepSize::quick ? quick_keeps_one_in : 1;
    if (offered_++ % keep_one_in != 0) return;
    c.problem.causal = mask.causal;
    c.problem.window_left = mask.left;
    c.problem.window_right = mask.right;
    c.problem.seed = ++seed_;
    if (is_fp8(c.problem.dtype)) c.direction = Direction::forward;
    cases_.push_back(c);
  }
  std::vector<VerifyCase> take() { return std::move(cases_); }

 private:
  TileShape tile_;
  SweepSize size_;
  std::int64_t head_dim_;
  int offered_ = 0;
  std::uint64_t seed_ = 0;
  std::vector<VerifyCase> cases_;
};

/// Those of what stands beside plain attention: descales, splits, masks and modifiers of scores, values of
/// other columns, pages.
void add_feature_cases(CaseList& list, TileShape tile, SweepSize size);

}  // namespace tilescope
