// SPDX-License-Identifier: Apache-2.0
// Tile shapes and on-chip layout of flash3's forward pass in fp8. Plain C++.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/tile_program.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope {

/// When a warpgroup multiplies P V of a tile.
enum class Flash3Fp8Order : std::uint8_t {
  after,   // before S of the next tile, which takes fewest registers
  beside,  // together with it
  lag,     // behind it, beside the softmax of the next tile: for fast sums
};

inline constexpr int kFlash3E4m3Power = 5;  // a P of 1 is kept as 2^5 in e4m3

/// Warpgroups that compute 64 rows each, and one that loads (a thread) and transposes V (three warps).
struct Flash3Fp8Shape {
  TileShape tile{128, 128};
  int head_dim = 0;    // compiled for; smaller ones run padded up on chip
  int kv_stages = 2;   // tiles of K, and of V transposed
  int raw_stages = 2;  // tiles of V as it was loaded
  int q_stages = 2;    // 2: the next q tile arrives while this one is computed
  Flash3Fp8Order order = Flash3Fp8Order::beside;
  bool ping_pong = false;  // one warpgroup multiplies while the other is at its softmax
  Fp8Sums sums = Fp8Sums::two_level;

  static constexpr bool tables = false, mods = false, paged = false;
  static constexpr bool interleaves() { return false; }
  static constexpr int transposing_warps() { return 3; }
  constexpr int v_stages() const { return raw_stages; }
  constexpr int consumers() const { return tile.block_m / 64; }
  constexpr int row_groups() const { return consumers(); }
  constexpr int threads() const { return 128 * (1 + consumers()); }
  constexpr int producer_registers() const { return consumers() > 2 ? 32 : 40; }
  constexpr int consumer_registers() const { return consumers() > 2 ? 160 : 232; }

  constexpr gpu::sm90::Swizzle width() const {
    return head_dim >= 128 ? gpu::sm90::Swizzle::bytes128 : gpu::sm90::Swizzle::bytes64;
  }
  constexpr gpu::sm90::PanelTile q_tile() const { return {64, head_dim, 1, width()}; }
  constexpr gpu::sm90::PanelTile kv_tile() const { return {tile.block_n, head_dim, 1, width()}; }
  constexpr gpu::sm90::PanelTile k_tile() const { return kv_tile(); }
  constexpr gpu::sm90::PanelTile v_tile() const { return kv_tile(); }
  constexpr gpu::sm90::PanelTile transposed_tile() const { return {head_dim, tile.block_n, 1}; }
  /// Columns of O that are computed at once: beside O, in two levels, registers hold no more than these.
  constexpr int part_cols() const { return sums == Fp8Sums::two_level && head_dim > 128 ? 64 : head_dim; }
  constexpr int parts() const { return head_dim / part_cols(); }
  constexpr int warps() const { return 4 * consumers(); }
  constexpr int q_buffers() const { return q_stages * consumers(); }
  constexpr bool operator==(const Flash3Fp8Shape&) const = default;
};

/// Offsets from the start of a CTA's shared memory; the end of the layout is its size. [bytes]
struct Flash3Fp8Layout {
  gpu::sm90::PipeLayout q, k, v, transposed;
  int items = 0;  // 16 bytes a Q buffer, and for one ahead
  int last = 0;   // 4 bytes a V buffer: there are no more
  int end = 0;

  constexpr explicit Flash3Fp8Layout(const Flash3Fp8Shape& shape) {
    gpu::sm90::SharedPieces shared;
    q = shared.take_buffers(shape.q_stages, shape.q_tile().bytes(), shape.consumers());
    k = shared.take_buffers(shape.kv_stages, shape.kv_tile().bytes());
    v = shared.take_buffers(shape.raw_stages, shape.kv_tile().bytes());
    transposed = shared.take_buffers(shape.kv_stages, shape.transposed_tile().bytes());
    items = shared.take(16 * (shape.q_buffers() + 1));
    last = shared.take((4 * shape.raw_stages + 7) / 8 * 8);
    shared.take_barriers(q, k, v, transposed);
    end = shared.end;
  }
};

/// The head dimensions that have instances of their own.
inline constexpr int kFlash3Fp8HeadDims[] = {64, 128, 256};

/// @param height  at head_dim 64 half ones have 128 rows and whole ones 192; else all have 128
constexpr Flash3Fp8Shape flash3_fp8_shape(int head_dim, Fp8Sums sums = Fp8Sums::two_level,
                                          Flash3Height height = Flash3Height::whole) {
  Flash3Fp8Shape shape;
  shape.head_dim = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
  shape.sums = sums;
  if (head_dim <= 64 && height != Flash3Height::whole) {
    shape.ping_pong = true;
  } else if (head_dim <= 64) {
    shape.tile.block_m = 192;
  } else if (head_dim > 128) {
    shape.tile.block_n = 96;
    shape.q_stages = 1;
    shape.order = sums == Fp8Sums::fast ? Flash3Fp8Order::lag : Flash3Fp8Order::after;
  }
  return shape;
}
/// Such a shape as a type, for templates.
template <int kHeadDim, Fp8Sums kSums = Fp8Sums::two_level, bool kHalf = false>
struct Flash3Fp8Choice {
  static constexpr Flash3Fp8Shape shape =
      flash3_fp8_shape(kHeadDim, kSums, kHalf ? Flash3Height::half : Flash3Height::whole);
};
static_assert(Flash3Fp8Layout(flash3_fp8_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3Fp8Layout(flash3_fp8_shape(128)).end <= kSm90SharedBytes);
static_assert(Flash3Fp8Layout(flash3_fp8_shape(256)).end <= kSm90SharedBytes);

}  // namespace tilescope
