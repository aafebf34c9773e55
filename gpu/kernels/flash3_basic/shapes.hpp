// SPDX-License-Identifier: Apache-2.0
// Tiles and shared memory of gpu:flash3-basic: shared by its registry row, its launch and its kernels. Plain
// C++.
#pragma once

#include "cpu_ref/kernels/chip.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope::flash3_basic {

/// The head dimensions that it is compiled for; smaller ones run padded up on chip.
inline constexpr int kHeadDims[] = {64, 128};
inline constexpr int kVariantHeadDim = 128;  // that its variant is compiled for, in fp16
constexpr int compiled_head_dim(std::int64_t head_dim) { return head_dim <= 64 ? 64 : 128; }

/// A CTA: one warpgroup that loads, and two that compute. Each warpgroup multiplies 64 rows at a time.
inline constexpr int kConsumers = 2;
inline constexpr int kConsumerThreads = 128 * kConsumers;
inline constexpr int kThreads = 128 + kConsumerThreads;
/// Registers a thread: setmaxnreg takes from the one what it gives to the others. Together they are the 168
/// with which all begin.
inline constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;

inline constexpr int kStages = 2;  // tiles that are under way, or in use

/// The forward pass: a CTA owns 128 queries, 64 a consumer, and streams K and V.
struct ForwardShape {
  int head_dim = 0;
  static constexpr TileShape tile{128, 128};

  constexpr gpu::sm90::PanelTile q_tile() const { return {tile.block_m, head_dim}; }
  constexpr gpu::sm90::PanelTile kv_tile() const { return {tile.block_n, head_dim}; }
};

/// Offsets from the start of a CTA's shared memory; the end of a layout is its size. [bytes]
struct ForwardLayout {
  int q = 0, q_full = 0;       // O leaves through Q's buffer
  gpu::sm90::PipeLayout k, v;  // a tile of both is under one pair of barriers
  int end = 0;

  constexpr explicit ForwardLayout(ForwardShape shape) {
    gpu::sm90::SharedPieces shared;
    q = shared.take(shape.q_tile().bytes());
    k = shared.take_buffers(kStages, shape.kv_tile().bytes());
    v = shared.take_buffers(kStages, shape.kv_tile().bytes());
    q_full = shared.take(8);
    shared.take_barriers(k);
    v.full = k.full;
    v.empty = k.empty;
    end = shared.end;
  }
};

/// The backward pass: a CTA owns 128 keys, 64 a consumer, and streams Q and dO. dK and dV of a consumer are
/// head_dim registers a thread, S and dP block_m: 192 together.
struct BackwardShape {
  int head_dim = 0;
  TileShape tile{head_dim <= 64 ? 128 : 64, 128};

  constexpr gpu::sm90::PanelTile kv_tile() const { return {tile.block_n, head_dim}; }
  constexpr gpu::sm90::PanelTile q_tile() const { return {tile.block_m, head_dim}; }
  constexpr gpu::sm90::PanelTile ds_tile() const { return {tile.block_n, tile.block_m}; }  // transposed
  /// A consumer's part of dQ: of a tile of 128 queries half of the rows, else half of the columns.
  constexpr gpu::sm90::PanelTile dq_tile() const { return {64, 64, 4}; }
  constexpr int first_dq_row(int consumer) const { return tile.block_m == 128 ? 64 * consumer : 0; }
  constexpr int first_dq_col(int consumer) const { return tile.block_m == 128 ? 0 : 64 * consumer; }
};

struct BackwardLayout {
  int k = 0, v = 0, kv_full = 0;  // dK and dV leave through K's and V's buffers
  gpu::sm90::PipeLayout q, dout;  // a tile of both, with LSE and delta, is under one pair of barriers
  int ds = 0, dq = 0;
  int lse = 0, delta = 0;  // fp32, block_m a stage
  int end = 0;

  constexpr explicit BackwardLayout(BackwardShape shape) {
    gpu::sm90::SharedPieces shared;
    k = shared.take(shape.kv_tile().bytes());
    v = shared.take(shape.kv_tile().bytes());
    q = shared.take_buffers(kStages, shape.q_tile().bytes());
    dout = shared.take_buffers(kStages, shape.q_tile().bytes());
    ds = shared.take(shape.ds_tile().bytes());
    dq = shared.take(kConsumers * shape.dq_tile().bytes());
    lse = shared.take(4 * kStages * shape.tile.block_m);
    delta = shared.take(4 * kStages * shape.tile.block_m);
    kv_full = shared.take(8);
    shared.take_barriers(q);
    dout.full = q.full;
    dout.empty = q.empty;
    end = shared.end;
  }
};

static_assert(ForwardLayout(ForwardShape{128}).end <= kSm90.shared_bytes_per_cta);
static_assert(BackwardLayout(BackwardShape{64}).end <= kSm90.shared_bytes_per_cta);
static_assert(BackwardLayout(BackwardShape{128}).end <= kSm90.shared_bytes_per_cta);

}  // namespace tilescope::flash3_basic
