// SPDX-License-Identifier: Apache-2.0
// Tile shapes and on-chip budgets of gpu:flash2-mma: one constexpr choice a pass, shared by the registry row,
// the launch and the kernels. Plain C++.
#pragma once

#include <cstdint>

#include "cpu_ref/kernels/chip.hpp"
#include "cpu_ref/schedule/problem.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"

namespace tilescope {

/// The head dimensions that the tensor-core kernels are compiled for; others run padded up on chip. Each one
/// more would cost 26 instantiations, so 16 and 32 share 64's kernels (wasting 3/4 and 1/2 of the products),
/// 96 shares 128's (1/4) and 192 shares 256's (1/4). Padding costs no traffic: it is never loaded or stored.
inline constexpr int kMmaHeadDims[] = {64, 128, 256};

constexpr int mma_head_dim(std::int64_t head_dim) {
  for (int compiled : kMmaHeadDims) {
    if (head_dim <= compiled) return compiled;
  }
  return 256;
}
/// The compiled one that holds keys and values, where those have columns of their own number.
inline int mma_dim(const AttentionProblem& problem) {
  return mma_head_dim(max_of(problem.head_dim, problem.value_dim()));
}

/// Columns of Q and K, and of V and O.
struct MmaDims {
  int head_dim, value_dim;
};
/// The pair that plain instances of their own are compiled for (DeepSeek-V3's prefill); problems that are
/// smaller in both run padded up to it. Of 192 + 128 columns 256 + 256 would compute 8/5.
inline constexpr MmaDims kMmaValueDims{192, 128};

/// Whether a problem takes the instances of kMmaValueDims, unless it is observed or its rows lie askew. Their
/// tiles are those of head_dim 256, which serve then.
inline bool has_mma_values(const AttentionProblem& problem) {
  const auto columns = [](std::int64_t dim, int compiled) { return dim <= compiled && dim % 8 == 0; };
  return problem.value_dim() != problem.head_dim && problem.head_dim > 128 &&
         columns(problem.head_dim, kMmaValueDims.head_dim) &&
         columns(problem.value_dim(), kMmaValueDims.value_dim) && problem.dropout == 0 &&
         problem.key_lengths.empty() && !problem.mask.any() && !problem.score_mods.any();
}

/// Shared memory of a pass that keeps `owned` tiles of block_m rows (Q; or Q and dO) and streams K and V
/// through `stages`. Offsets in bytes; a layout's end is its size.
struct MmaQueryLayout {
  TileShape tile;
  int head_dim = 0, owned = 1, stages = 1;
  int value_dim = head_dim;

  constexpr int q() const { return 0; }
  constexpr int dout() const { return owned_bytes(head_dim); }
  constexpr int k(int stage) const {
    return owned_end() + stage * (kv_bytes(head_dim) + kv_bytes(value_dim));
  }
  constexpr int v(int stage) const { return k(stage) + kv_bytes(head_dim); }
  constexpr int end() const { return k(stages); }

 private:
  constexpr int owned_bytes(int columns) const { return 2 * tile.block_m * columns; }
  constexpr int owned_end() const { return owned_bytes(head_dim) + (owned - 1) * owned_bytes(value_dim); }
  constexpr int kv_bytes(int columns) const { return 2 * tile.block_n * columns; }
};

/// Shared memory of the dkdv pass: K, V; `stages` of Q and dO; P^T and dS^T, whose rows are keys; `stages` of
/// lse and delta. Offsets in bytes.
struct MmaDkdvLayout {
  TileShape tile;
  int head_dim = 0, stages = 1;
  int value_dim = head_dim;

  constexpr int k() const { return 0; }
  constexpr int v() const { return kv_bytes(head_dim); }
  constexpr int q(int stage) const {
    return v() + kv_bytes(value_dim) + stage * (q_bytes(head_dim) + q_bytes(value_dim));
  }
  constexpr int dout(int stage) const { return q(stage) + q_bytes(head_dim); }
  constexpr int probs() const { return q(stages); }
  constexpr int dscores() const { return probs() + score_bytes(); }
  constexpr int lse(int stage) const { return dscores() + score_bytes() + stage * 2 * row_value_bytes(); }
  constexpr int delta(int stage) const { return lse(stage) + row_value_bytes(); }
  constexpr int end() const { return lse(stages); }

 private:
  constexpr int kv_bytes(int columns) const { return 2 * tile.block_n * columns; }
  constexpr int q_bytes(int columns) const { return 2 * tile.block_m * columns; }
  constexpr int score_bytes() const { return 2 * tile.block_m * tile.block_n; }
  constexpr int row_value_bytes() const { return 4 * tile.block_m; }
};

/// The forward pass: each warp owns block_m / warps rows of Q and O, and reads all of K and V. Q stays in
/// shared memory: its fragments would take the registers that S needs.
struct MmaForwardShape {
  TileShape tile;
  int warps = 0;
  int ctas_per_sm = 0;  // bounds the registers a thread may take
  int stages = 0;       // of K and V; 0: two where they fit, else one
  int value_dim = 0;    // columns of V and O; 0: head_dim

  constexpr int threads() const { return 32 * warps; }
  constexpr int warp_rows() const { return tile.block_m / warps; }
  constexpr int values(int head_dim) const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr MmaQueryLayout layout(int head_dim, int in_stages) const {
    return {tile, head_dim, 1, in_stages, values(head_dim)};
  }
};

/// Every fragment of K and V that a warp reads serves its own rows only, so shared memory must deliver
/// 256 bytes / (warp rows / 16) for each 16 x 8 x 16 product, of the 190 or so that an H200's SM can deliver
/// in the time of one: 32 rows a warp where the registers allow it.
/// @param narrow  with dropout, whose random words need registers, or score modifiers and bits of tiles: half
/// of S
constexpr MmaForwardShape mma_forward_shape(int head_dim, bool narrow = false) {
  // 64: O takes 64 registers a thread and S 128; 128 keys a barrier, and Q read again for each of them.
  if (head_dim <= 64) return {{128, narrow ? 64 : 128}, 4, 2};
  // 128: O takes 128 registers, S 64; two CTAs of 96 KiB share an SM and hide each other's softmax.
  if (head_dim <= 128) return {{128, narrow ? 32 : 64}, 4, 2};
  // 256: O would take 256 registers at 32 rows a warp, so 16 rows and 8 warps.
  return {{128, 64}, 8, 1};
}
/// Of kMmaValueDims: with O at 32 rows a warp, as at head_dim 128, copies of wider keys would make it spill.
constexpr MmaForwardShape mma_values_forward_shape() { return {{128, 64}, 8, 1, 0, kMmaValueDims.value_dim}; }

/// The dkdv pass, and dkdvdq with dQ reduced in passing. Scores are computed transposed: a group of
/// warps_m() warps owns 32 keys, each warp of it some of the queries of S^T and some of the columns of dK
/// and dV.
struct MmaDkdvShape {
  TileShape tile;
  int warps = 0;
  int stages = 0;                        // of Q and dO, at most two; 0: two where they fit, else one
  int value_dim = 0;                     // columns of V and dO; 0: head_dim
  static constexpr int ctas_per_sm = 1;  // dK, dV and scores take the registers of an SM

  constexpr int threads() const { return 32 * warps; }
  constexpr int warps_n() const { return tile.block_n / 32; }
  constexpr int warps_m() const { return warps / warps_n(); }
  constexpr int warp_queries() const { return tile.block_m / warps_m(); }
  /// dQ: 32 queries a warp, so that many columns.
  constexpr int dq_warps_m() const { return tile.block_m / 32; }
  constexpr int dq_warps_d() const { return warps / dq_warps_m(); }

  constexpr int values(int head_dim) const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr MmaDkdvLayout layout(int head_dim, int in_stages) const {
    return {tile, head_dim, in_stages, values(head_dim)};
  }
};

/// dK and dV of a tile stay in registers: block_n x head_dim x 2 fp32 values of the SM's 65536.
constexpr MmaDkdvShape mma_dkdv_shape(int head_dim) {
  // 64: both sides 128, so that a warp's share of S^T is 32 x 64 and of dQ 32 x 32.
  if (head_dim <= 64) return {{128, 128}, 8};
  // 128: dK and dV take half of the registers at block_n 128, which halves the dQ reductions of block_n 64.
  if (head_dim <= 128) return {{64, 128}, 8};
  // 256: the same half at block_n 64; K, V and two stages of Q, dO fill 200 KiB.
  return {{64, 64}, 8};
}
/// Of kMmaValueDims: the same tile, for 5/8 of the registers.
constexpr MmaDkdvShape mma_values_dkdv_shape() { return {{64, 64}, 8, 0, kMmaValueDims.value_dim}; }

/// The dq pass: as the forward pass, with dO beside Q and dQ in O's place.
struct MmaDqShape {
  TileShape tile;
  int warps = 0;
  int ctas_per_sm = 0;
  int stages = 0;     // of K and V; 0: two where they fit, else one
  int value_dim = 0;  // columns of V and dO; 0: head_dim

  constexpr int threads() const { return 32 * warps; }
  constexpr int warp_rows() const { return tile.block_m / warps; }
  constexpr int values(int head_dim) const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr MmaQueryLayout layout(int head_dim, int in_stages) const {
    return {tile, head_dim, 2, in_stages, values(head_dim)};
  }
};

constexpr MmaDqShape mma_dq_shape(int head_dim) {
  // 64: dQ, S and dP take 64 registers each.
  if (head_dim <= 64) return {{128, 64}, 4, 2};
  // 128: dQ takes 128 registers at 32 rows a warp; block_n 32 leaves 32 each for S and dP.
  if (head_dim <= 128) return {{128, 32}, 4, 2};
  // 256: 16 rows a warp, dQ 128 registers, S and dP 16 each.
  return {{128, 32}, 8, 1};
}
/// Of kMmaValueDims: the same tile, with dQ of 96 registers.
constexpr MmaDqShape mma_values_dq_shape() { return {{128, 32}, 8, 1, 0, kMmaValueDims.value_dim}; }

/// The same tiles in a CTA that has computed dK and dV before, and has as many warps as that takes.
constexpr MmaDqShape mma_single_launch_dq_shape(int head_dim) {
  return {mma_dq_shape(head_dim).tile, mma_dkdv_shape(head_dim).warps, 1};
}

/// Local memory of a thread that holds what registers of plain instances do not, on sm_90. [bytes] What ptxas
/// says, to which tests/gpu/registry/spilled_bytes_test.cpp holds it.
constexpr int mma_forward_spilled_bytes(int head_dim) { return head_dim <= 128 ? 32 : 0; }
constexpr int mma_dkdv_spilled_bytes(int head_dim) { return head_dim <= 64 ? 16 : head_dim <= 128 ? 8 : 0; }
constexpr int mma_dkdvdq_spilled_bytes(int head_dim) {
  return head_dim <= 64 ? 24 : head_dim <= 128 ? 8 : 32;
}

/// Shared memory that one CTA may take. [bytes]
constexpr int max_shared_bytes(int compute_capability_major) {
  return static_cast<int>((compute_capability_major >= 9 ? kSm90 : kSm80).shared_bytes_per_cta);
}
/// The shape's stages, or two, where they fit, else fewer: a single stage's copies wait for the products of
/// the tile before.
template <typename Shape>
constexpr int stages_that_fit(const Shape& shape, int head_dim, int compute_capability_major) {
  int stages = shape.stages > 0 ? shape.stages : 2;
  while (stages > 1 && shape.layout(head_dim, stages).end() > max_shared_bytes(compute_capability_major)) {
    --stages;
  }
  return stages;
}

/// The layout of a kernel on an architecture. One that was asked for in more stages than fit is compiled
/// there in fewer, and never launched.
template <typename Shape>
constexpr auto layout_on(const Shape& shape, int head_dim, int compute_capability_major) {
  return shape.layout(head_dim, stages_that_fit(shape, head_dim, compute_capability_major));
}

}  // namespace tilescope
