// SPDX-License-Identifier: Apache-2.0
// Tile shapes and on-chip layout of flash3's fused backward pass (dkdvdq). Plain C++.
#pragma once

#include <cstdint>

#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"
#include "gpu/primitives/sm90/shared_layout.hpp"

namespace tilescope {

/// What the computing warpgroups have each for itself; the rest is common.
enum class Flash3Split : std::uint8_t {
  keys,         // 64 keys of S, dK and dV, of all columns: keys.cuh, halves.cuh
  specialised,  // P and dV, or dS and dK, of all columns: specialised.cuh
  columns,      // 64 columns of dK, dV and dQ, of all keys: columns.cuh
};

/// A CTA owns block_n keys and streams tiles of block_m queries.
struct Flash3BackwardShape {
  TileShape tile;
  int head_dim = 0;  // compiled for; smaller ones run padded up on chip
  Flash3Split split = Flash3Split::keys;
  int q_stages = 2;         // of Q with its LSE
  int dout_stages = 2;      // of dO with its delta
  bool dq_first = false;    // dQ = dS K is computed before dV, and added to memory beside it
  int dq_box_cols = 32;     // of dQ, handed over at once
  bool persistent = false;  // a CTA takes one kv tile after the other, as many CTAs as run at once
  bool ordered = false;     // kv tiles add to dQ in their order, so that its bits are the same every time
  bool dq_behind = false;  // dQ of a tile is computed in the next step, when nobody has to wait for the other
                           // warpgroup's dS any more
  bool apart = false;   // Flash3Split::keys: each warpgroup has a program of its own, since the second panel
                        // of dQ has 32 columns at most
  bool tables = false;  // q tiles are found in tables (VisitTables), which serve every mask
  bool one_dq = false;  // Flash3Split::keys, dQ behind: the first warpgroup computes all columns of it
  bool halves = false;  // Flash3Split::keys: dP comes in halves of the queries: halves.cuh

  constexpr bool specialised() const { return split == Flash3Split::specialised; }
  constexpr bool by_columns() const { return split == Flash3Split::columns; }
  constexpr int consumers() const { return by_columns() ? 3 : 2; }
  constexpr int warps() const { return 4 * consumers(); }
  constexpr int threads() const { return 128 * (1 + consumers()); }
  constexpr int producer_registers() const { return by_columns() ? 32 : tables ? 40 : 24; }
  constexpr int consumer_registers() const { return by_columns() ? 160 : tables ? 232 : 240; }
  /// Of a q tile (DqStart), for each thread that sends dQ: one a warpgroup; or one for three.
  constexpr int flags() const { return by_columns() ? 1 : 2; }
  constexpr int senders() const { return one_dq ? 1 : flags(); }
  /// Warpgroups that compute dQ.
  constexpr int dq_groups() const { return one_dq ? 1 : consumers(); }
  /// Buffers of dS. A single one costs a barrier a step, unless P's barrier orders the same.
  constexpr int ds_stages() const { return by_columns() || halves ? 1 : 2; }

  constexpr gpu::sm90::PanelTile kv_tile() const { return {tile.block_n, head_dim}; }
  constexpr gpu::sm90::PanelTile q_tile() const { return {tile.block_m, head_dim}; }
  /// dS, transposed: a row a key.
  constexpr gpu::sm90::PanelTile ds_tile() const { return {tile.block_n, tile.block_m}; }
  /// Of a partial tile of a table, a bit for each query of each key.
  constexpr int bit_bytes() const { return tile.block_n * tile.block_m / 8; }
  /// What a warpgroup hands over of dQ at once, in fp32, and how often before it must wait.
  constexpr gpu::sm90::PanelTile dq_box() const { return {64, dq_box_cols, 4, gpu::sm90::Swizzle::bytes128}; }
  constexpr int dq_stages() const { return one_dq ? dq_boxes(0) : 64 / dq_box_cols; }
  constexpr int dq_boxes(int group) const { return dq_cols(group) / dq_box_cols; }

  /// A warpgroup's keys: 64, from this one on.
  constexpr int first_key(int group) const { return split == Flash3Split::keys ? 64 * group : 0; }
  /// A warpgroup computes 64 queries and some of the columns of dQ, over all keys: one panel, of which the
  /// second may have few columns; or, where a tile has 128 queries, half of those.
  constexpr bool dq_by_queries() const { return tile.block_m == 128; }
  constexpr int dq_cols(int group) const {
    if (halves) return group == 0 ? 96 : 64;
    if (one_dq) return group == 1 ? 0 : 96;
    if (!specialised()) return group == 1 && apart ? 32 : 64;
    return 64 * (group == 0 ? first_dq_panel(1) : kv_tile().panels() - first_dq_panel(1));
  }
  constexpr int first_dq_panel(int group) const {
    if (by_columns()) return group;
    if (specialised()) return (kv_tile().panels() + 1) / 2 * group;
    return dq_by_queries() ? 0 : group;
  }
  /// Where a box of dQ begins. Halves: the first warpgroup has the third panel, too.
  constexpr int dq_col(int group, int box) const {
    const int first = 64 * first_dq_panel(group);
    return first + dq_box_cols * box + (halves && dq_box_cols * box >= 64 ? 64 : 0);
  }
  /// In persistent CTAs, dK and dV leave while the next K and V come: both through one buffer of dS; or else
  /// dK through all of dS, and dV through those of dQ.
  constexpr bool leave_by_one_ds() const { return ds_tile().bytes() >= 2 * kv_tile().bytes(); }
  constexpr bool can_persist() const {
    return leave_by_one_ds() || (ds_stages() * ds_tile().bytes() >= kv_tile().bytes() &&
                                 consumers() * dq_stages() * dq_box().bytes() >= kv_tile().bytes());
  }
  /// Whether several CTAs may share a kv tile: see ProgramOptions::query_splits.
  constexpr bool can_share() const { return !persistent; }
  /// Of observed instances: what they log is the same, and one program has fewer registers under way.
  constexpr Flash3BackwardShape together() const {
    Flash3BackwardShape shape = *this;
    shape.apart = shape.one_dq = false;
    return shape;
  }
  constexpr bool operator==(const Flash3BackwardShape&) const = default;
};

/// Offsets from the start of a CTA's shared memory; the end of the layout is its size. [bytes]
struct Flash3BackwardLayout {
  gpu::sm90::PipeLayout k, v;     // one buffer each, which become empty together
  gpu::sm90::PipeLayout q, dout;  // with LSE, and with delta
  gpu::sm90::PipeLayout ds;       // its barriers: where dQ is behind, or warpgroups are specialised
  gpu::sm90::PipeLayout probs;    // where P passes through shared memory
  gpu::sm90::PipeLayout dq;       // boxes on their way to memory: a ring a warpgroup
  int lse = 0, delta = 0;         // fp32, block_m a stage of Q and of dO
  gpu::sm90::PipeLayout visits;   // of tables: q tiles and places of their bits, from who asks for them
  int bits = 0;                   // of tables: a stage of Q's
  int visit_count = 0;            // of tables: a barrier, and how many tiles the CTA's kv tile meets
  int end = 0;

  constexpr explicit Flash3BackwardLayout(const Flash3BackwardShape& shape) {
    gpu::sm90::SharedPieces shared;
    k = shared.take_buffers(1, shape.kv_tile().bytes());
    v = shared.take_buffers(1, shape.kv_tile().bytes());
    q = shared.take_buffers(shape.q_stages, shape.q_tile().bytes());
    dout = shared.take_buffers(shape.dout_stages, shape.q_tile().bytes());
    ds = shared.take_buffers(shape.ds_stages(), shape.ds_tile().bytes());
    probs = shared.take_buffers(1, shape.by_columns()    ? shape.ds_tile().bytes()
                                   : shape.specialised() ? 4 * shape.tile.block_m * shape.tile.block_n
                                                         : 0);
    dq = shared.take_buffers(shape.dq_stages(), shape.dq_box().bytes(), shape.dq_groups(), false);
    lse = shared.take(4 * shape.q_stages * shape.tile.block_m);
    delta = shared.take(4 * shape.dout_stages * shape.tile.block_m);
    bits = shared.take(shape.tables ? shape.q_stages * shape.bit_bytes() : 0);
    visits = shared.take_buffers(shape.tables ? kVisitStages : 0, kVisitBytes);
    visit_count = shared.take(shape.tables ? 16 : 0);
    k.full = shared.take(8);
    v.full = shared.take(8);
    k.empty = v.empty = shared.take(8);
    shared.take_barriers(q, dout, ds, probs, dq, visits);
    end = shared.end;
  }
  /// A q tile that was asked for stays until Q's buffer has come round and dQ of the tile before has left.
  static constexpr int kVisitStages = 8, kVisitBytes = 8;
};

/// head_dim 136 to 160.
constexpr Flash3BackwardShape flash3_backward_halves(bool ordered) {
  Flash3BackwardShape shape{.tile = {64, 128}, .head_dim = 160};
  shape.dout_stages = 1;
  shape.ordered = ordered;
  shape.halves = true;
  return shape;
}
/// Registers bound the tile: of a warpgroup's 64 keys, a thread holds head_dim of dK and dV together, and
/// block_m of S and dP. Shared memory bounds the stages.
/// @param ordered, wish_persistent  see Flash3BackwardShape; no ordered one is persistent
constexpr Flash3BackwardShape flash3_backward_shape(int head_dim, bool ordered = false,
                                                    bool wish_persistent = false) {
  const bool persistent = wish_persistent && !ordered, behind = !ordered && !persistent;
  if (head_dim > 160) {
    Flash3BackwardShape shape{.tile = {64, 96}, .head_dim = 192, .split = Flash3Split::columns};
    if (head_dim > 192) shape = {.tile = {64, 64}, .head_dim = 256, .split = Flash3Split::specialised};
    shape.dout_stages = 1;
    shape.ordered = ordered;
    return shape;
  }
  if (head_dim > 128) return flash3_backward_halves(ordered);
  Flash3BackwardShape shape{.tile = {64, 128}, .head_dim = head_dim <= 80 ? 80 : head_dim <= 96 ? 96 : 128};
  shape.q_stages = 3;
  shape.persistent = persistent;
  shape.ordered = ordered;
  if (head_dim <= 64) {
    shape.tile.block_m = 128;
    shape.head_dim = 64;
    shape.dq_box_cols = 64;
    shape.dq_behind = !persistent;
  } else if (head_dim <= 96) {
    shape.dq_first = !behind;
    shape.dq_behind = shape.apart = behind;
    shape.one_dq = behind && head_dim > 80;
  } else {
    shape.dq_first = persistent;
    shape.dq_behind = !persistent;
  }
  return shape;
}
/// Masks beside a band, at head dimensions up to kFlash3TablesHeadDim: the tiles of long rows, of whose bits
/// a thread has two keys.
constexpr Flash3BackwardShape flash3_backward_table_shape(int head_dim) {
  Flash3BackwardShape shape = flash3_backward_shape(head_dim <= 64 ? 64 : kFlash3TablesHeadDim);
  shape.tables = true;
  return shape;
}
/// Whether the backward pass of a problem finds its tiles in tables.
inline bool flash3_has_backward_tables(const AttentionProblem& problem) { return problem.mask.any(); }

/// Of the pass in which kv tiles add to dQ as they come.
inline Flash3BackwardShape flash3_backward_shape(const AttentionProblem& problem) {
  const int head_dim = static_cast<int>(problem.head_dim);
  return flash3_has_backward_tables(problem) ? flash3_backward_table_shape(head_dim)
                                             : flash3_backward_shape(head_dim);
}

/// Heads of an L2 swizzle (TileOrder::head_swizzled), for masked problems: its Q, dO and dQ in fp32,
/// which its kv tiles go through one after the other, should stay in L2, and be there for the next pass.
/// Where rows are short one head after the other does best; where they are long, single heads would end in
/// long tiles. On an H200 (causal, this pass alone, TFLOP/s with swizzles of 1 head, 8, 16, 32 MiB, and as
/// large as the forward pass's): head_dim 64 at 512 keys 262, 258, 251, 247, 226; 128 at 2048 keys 477, 486,
/// 500, 483, 482, at 8192 keys 516, -, 543, 548, 548; 256 at 512 keys 264, 267, 265, 254, 152, at 2048 keys
/// 366, 373, 377, 376, 314.
/// @param heads  batch x key/value heads; group  query heads that share K and V; least  see
/// flash3_least_heads()
constexpr int flash3_backward_swizzled_heads(int head_dim, std::int64_t seqlen_q, std::int64_t heads,
                                             std::int64_t group, bool short_rows, std::int64_t least = 1) {
  if (short_rows) return 1;
  const std::int64_t fitting = (std::int64_t{16} << 20) / ((2 + 2 + 4) * seqlen_q * head_dim * group);
  const std::int64_t few = head_dim > 128 ? 2 : 4;
  return flash3_even_swizzles(fitting, least > few ? least : few, heads);
}
static_assert(flash3_backward_swizzled_heads(128, 8192, 32, 1, false) == 4);
static_assert(flash3_backward_swizzled_heads(256, 2048, 64, 1, false) == 4);
static_assert(flash3_backward_swizzled_heads(256, 512, 256, 1, true) == 1);
/// Whether CTAs are persistent: where keys see so few queries that the ends of kv tiles weigh more than a dQ
/// behind gains. On an H200 (us of the whole backward pass, persistent and not): head_dim 64 causal at 512
/// keys 414, 462, at 1024 569, 599; full at 1024 845, 841; 128 causal at 1024 523, 534; full at 1024 747,
/// 738.
/// @param visible_pairs, rows  of all heads; rows: of queries, or of keys
constexpr bool flash3_backward_persistent(std::int64_t visible_pairs, std::int64_t rows) {
  return visible_pairs <= 768 * rows;
}
/// Whether the first kv tile of a q tile stores its dQ where CTAs are not persistent. On an H200 (us of the
/// whole backward pass at 1024 ... 8192 keys, clearing and so, persistent ones in brackets): head_dim 64
/// causal [571 526], 870 836, 1416 1385, 2536 2490; 128 causal [496 487], 747 712, 1250 1209, 2268 2231; but
/// 96 causal 435 438, 645 652, 1105 1109, 1988 1959. Without a mask all kv tiles of a head go through its q
/// tiles in step, and those that wait lose what delta gains (64 full at 2048 keys 1385 1372, at 8192 4789
/// 5062; 128 1249 1251, 4384 4482); so do those of 256 (causal at 2048 899 930, at 8192 2795 3122). Causal
/// 160 at 1344 keys 211 206, 192 at 1924 2676 2599, at 8192 2165 2130.
constexpr bool flash3_stores_in_order(int head_dim, bool masked) {
  return masked && (head_dim <= 64 || (96 < head_dim && head_dim <= 192));
}
/// Such a shape as a type, for templates.
template <int kHeadDim, bool kOrdered = false, bool kPersistent = false>
struct Flash3BackwardChoice {
  static constexpr Flash3BackwardShape shape = flash3_backward_shape(kHeadDim, kOrdered, kPersistent);
};
template <int kHeadDim>
struct Flash3BackwardTableChoice {
  static constexpr Flash3BackwardShape shape = flash3_backward_table_shape(kHeadDim);
};
static_assert(Flash3BackwardLayout(flash3_backward_table_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_table_shape(128)).end <= kSm90SharedBytes);
static_assert(flash3_backward_shape(64, false, true).can_persist());
static_assert(flash3_backward_shape(80, false, true).can_persist());
static_assert(flash3_backward_shape(96, false, true).can_persist());
static_assert(flash3_backward_shape(128, false, true).can_persist());
static_assert(Flash3BackwardLayout(flash3_backward_shape(64)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(80)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(96)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(128)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(160)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(192)).end <= kSm90SharedBytes);
static_assert(Flash3BackwardLayout(flash3_backward_shape(256)).end <= kSm90SharedBytes);

}  // namespace tilescope
