// SPDX-License-Identifier: Apache-2.0
// Tile shape and on-chip layout of flash3's fused backward pass (dkdvdq). Plain C++.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/kernels/flash3/shapes.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope {

/// A CTA owns block_n keys, 64 for each of two computing warpgroups, and streams tiles of 64 queries.
struct Flash3BackwardShape {
  TileShape tile{64, 128};
  int head_dim = 128;
  int stages = 2;  // of Q with its LSE, and of dO with its delta

  constexpr int consumers() const { return tile.block_n / 64; }
  constexpr int threads() const { return 128 * (1 + consumers()); }
  constexpr int producer_registers() const { return 24; }
  constexpr int consumer_registers() const { return 240; }

  constexpr gpu::sm90::PanelTile kv_tile() const { return {tile.block_n, head_dim}; }
  constexpr gpu::sm90::PanelTile q_tile() const { return {tile.block_m, head_dim}; }
  /// dS, transposed: a row a key.
  constexpr gpu::sm90::PanelTile ds_tile() const { return {tile.block_n, tile.block_m}; }
  /// A warp's share of dQ, in fp32: 16 queries x its warpgroup's columns.
  constexpr gpu::sm90::PanelTile dq_tile() const {
    return {16, head_dim / consumers(), 4, gpu::sm90::Swizzle::bytes128};
  }
  constexpr int warps() const { return 4 * consumers(); }
  constexpr bool operator==(const Flash3BackwardShape&) const = default;
};

/// Offsets from the start of a CTA's shared memory; the end of the layout is its size. [bytes]
struct Flash3BackwardLayout {
  int k = 0, v = 0, q = 0, dout = 0, ds = 0, dq = 0;
  int lse = 0, delta = 0;                                                   // fp32, block_m a stage
  int kv_full = 0, q_full = 0, q_empty = 0, dout_full = 0, dout_empty = 0;  // barriers of 8 bytes
  int end = 0;

  constexpr explicit Flash3BackwardLayout(const Flash3BackwardShape& shape) {
    int next = 0;
    const auto take = [&next](int bytes) {
      const int at = next;
      next += bytes;
      return at;
    };
    k = take(shape.kv_tile().bytes());
    v = take(shape.kv_tile().bytes());
    q = take(shape.stages * shape.q_tile().bytes());
    dout = take(shape.stages * shape.q_tile().bytes());
    ds = take(shape.ds_tile().bytes());
    dq = take(shape.warps() * shape.dq_tile().bytes());
    lse = take(4 * shape.stages * shape.tile.block_m);
    delta = take(4 * shape.stages * shape.tile.block_m);
    kv_full = take(8);
    q_full = take(8 * shape.stages);
    q_empty = take(8 * shape.stages);
    dout_full = take(8 * shape.stages);
    dout_empty = take(8 * shape.stages);
    end = next;
  }
};
struct Flash3BackwardChoice {
  static constexpr Flash3BackwardShape shape{};
};
static_assert(Flash3BackwardLayout(Flash3BackwardShape{}).end <= kSm90SharedBytes);

}  // namespace tilescope
