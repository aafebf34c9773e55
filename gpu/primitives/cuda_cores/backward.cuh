// SPDX-License-Identifier: Apache-2.0
// What the backward passes on CUDA cores share: two groups of warps with a role each, their shared memory,
// and the ways of a gradient out.
//
// A step has five products. The first group computes S, P and dV, the second dP, dS and dK, and both together
// dQ: so a thread holds one of dK and dV and one of P and dP, which leaves registers for larger parts of
// each, and while one group is busy with exponentials the other multiplies.
#pragma once

#include "gpu/primitives/common/cp_async.cuh"
#include "gpu/primitives/cuda_cores/layouts.hpp"
#include "gpu/primitives/cuda_cores/softmax.cuh"

namespace tilescope::cuda_cores {

enum class Role : int { probs, dscores };
/// That of this thread's group.
__device__ inline Role role_of_thread() { return static_cast<Role>(group_of_thread()); }

/// Waits for the other warps of this thread's group. Called by both groups, though one would do in places:
/// compute-sanitizer's racecheck counts the barriers that a warp has met.
__device__ inline void sync_group() {
  asm volatile("bar.sync %0, %1;" ::"r"(1 + group_of_thread()), "n"(kThreads) : "memory");
}

/// One of two tiles. A choice between pointers would make the compiler forget that both are shared memory.
template <int Cols>
__device__ inline SharedTile<Cols> either(bool first, SharedTile<Cols> one, SharedTile<Cols> other) {
  return {one.data + (first ? 0 : other.data - one.data)};
}

/// The q tiles that a kv tile meets, one query head of its group after the other.
struct QueryTiles {
  TileRange range;
  Scan scan;
  int wave_parity;
  int head;
  int inner = 0;

  __device__ int m_block() const { return scan_tile(scan, range, wave_parity, inner); }
  __device__ void advance() {  // divisions of a step's number would take longer
    if (++inner < range.count()) return;
    inner = 0;
    ++head;
  }
};

/// How a step's products are laid over the warps: those of one group, and for dQ all of them.
template <int Dim, int BlockM, int BlockN>
struct BackwardTiles {
  using Scores = SquarestTile<BlockM, BlockN>;
  using KvGradient = SquarestTile<BlockN, Dim>;
  using QGradient = SquarestTile<BlockM, Dim, kBackwardGroups * kWarps>;
};

/// The tiles of a backward pass in shared memory.
template <int Dim, int BlockM, int BlockN>
struct BackwardShared {
  SharedTile<Dim> q, dout, k, v;
  SharedTile<BlockN> probs, dscores;
  float *lse, *delta, *row_sum;  // FlashAttention keeps m where FlashAttention-2 keeps LSE, and l as well

  __device__ explicit BackwardShared(float* base)
      : q{base + layout().q()},
        dout{base + layout().dout()},
        k{base + layout().k()},
        v{base + layout().v()},
        probs{base + layout().probs()},
        dscores{base + layout().dscores()},
        lse(base + layout().row_values(0)),
        delta(base + layout().row_values(1)),
        row_sum(base + layout().row_values(2)) {}

 private:
  __device__ static constexpr BackwardLayout layout() { return {{BlockM, BlockN}, Dim}; }
};

/// A role's product of scores: S = Q K^T, or dP = dO V^T.
template <int Dim, int BlockM, int BlockN>
__device__ inline void multiply_scores(Role role, const BackwardShared<Dim, BlockM, BlockN>& shared,
                                       typename BackwardTiles<Dim, BlockM, BlockN>::Scores& product) {
  const bool first = role == Role::probs;
  multiply_nt<64>(Lane::in_group(), either(first, shared.q, shared.dout), either(first, shared.k, shared.v),
                  product);
}

/// From S in the first group and dP in the second to P and dS in shared memory, as their products take them:
/// with mask, dropout, rounding to the element type and sign. Each group has its own when this returns, and
/// the first group's P can be read by all. Without `AllFeatures` there is no dropout, sign or log. Source:
/// FlashAttention-2, Algorithm 2, lines 11 and 14; FlashAttention, Algorithm 4, lines 13 and 20.
template <bool AllFeatures, typename Element, int Dim, int BlockM, int BlockN, typename Tile,
          typename Probability>
__device__ inline void exchange_scores(Role role, const BackwardShared<Dim, BlockM, BlockN>& shared,
                                       int tile_query, int tile_key, bool full, const KernelArguments& args,
                                       const VisibleBand& band, int batch_head,
                                       const Probability& probability, const TileLogEntry& entry,
                                       Tile& tile) {
  const Lane lane = Lane::in_group();
  const ScorePlace<Tile> place(lane, tile_query, tile_key);
  const bool dropout = AllFeatures && args.dropout.active();
  [[maybe_unused]] const std::uint64_t kept = dropout ? place.kept(args.dropout, batch_head) : 0;
  const auto log = [&](double DeviceTileState::*field) {
    if constexpr (AllFeatures) {
      if (entry.open()) entry.add(field, place.visible_sum(band, tile));
    }
  };
  if (role == Role::probs) {
    if constexpr (AllFeatures) sign_scores(tile, args);
    log(&DeviceTileState::scores);
    if (full) {
      probability_step<false>(place, tile_query, args, band, probability, tile);
    } else {
      probability_step<true>(place, tile_query, args, band, probability, tile);
    }
    put(lane, shared.dscores, tile);  // for the other group, whose threads find it in place of their own
    if (dropout) place.drop(kept, args.dropout.keep_scale, tile);
    round_tile<Element>(tile);
    log(&DeviceTileState::probs);
    put(lane, shared.probs, tile);
  } else {
    if (dropout) place.drop(kept, args.dropout.keep_scale, tile);
    log(&DeviceTileState::dprobs);
  }
  __syncthreads();  // P, and delta where it is computed here
  if (role == Role::dscores) {
    const float* const probs = shared.dscores.chunk(Tile::row(lane, 0), Tile::col(lane, 0) / 4);
#pragma unroll
    for (int a = 0; a < Tile::kRowsHere; ++a) {
      const int row = Tile::row(lane, a);
      const float delta = shared.delta[row];
#pragma unroll
      for (int q = 0; q < Tile::kQuadsHere; ++q) {
        const float4 p = load_chunk(probs + Tile::row_step(a) * BlockN + 32 * q);
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          float& score = tile.x[a][4 * q + x];
          score = component(p, x) * (score - delta);
        }
      }
    }
    round_tile<Element>(tile);
    log(&DeviceTileState::dscores);
    put(lane, shared.dscores, tile);
  }
  sync_group();
}

/// A role's gradient of keys or values: sum += P^T dO, or dS^T Q.
template <int Dim, int BlockM, int BlockN>
__device__ inline void multiply_gradient(Role role, const BackwardShared<Dim, BlockM, BlockN>& shared,
                                         typename BackwardTiles<Dim, BlockM, BlockN>::KvGradient& sum) {
  const bool first = role == Role::probs;
  multiply_tn<BlockM>(Lane::in_group(), either(first, shared.probs, shared.dscores),
                      either(first, shared.dout, shared.q), sum);
}

/// A group copies LSE or delta of a q tile; zeros beyond the matrix. 16 bytes a thread, past L1, where the
/// rows start at such a boundary.
template <int Rows>
__device__ inline void load_row_values(float* destination, const GlobalRows<const float>& source) {
  const int thread = thread_in_group();
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(destination));
  if (source.row_stride == 1 && reinterpret_cast<std::uintptr_t>(source.data) % 16 == 0) {
    if (4 * thread >= Rows) return;
    copy_async_floats(shared + 16 * thread, source.data + 4 * thread, source.rows - 4 * thread);
  } else if (thread < Rows) {
    copy_async_4(shared + 4 * thread, source.at(thread, 0), thread < source.rows);
  }
}

/// Writes a gradient times `factor`.
template <typename Element, typename Tile>
__device__ inline void store_gradient(Lane lane, const GlobalRows<Element>& target, float factor,
                                      const Tile& gradient) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      const float4 x = gradient.quad(i, q);
      store_quad(target, Tile::row(lane, i), Tile::col(lane, 4 * q),
                 {x.x * factor, x.y * factor, x.z * factor, x.w * factor});
    }
  }
}

/// Adds a tile's part of a gradient to an fp32 accumulator in slow memory.
template <typename Tile>
__device__ inline void reduce_gradient(Lane lane, const GlobalRows<float>& target, const Tile& part) {
#pragma unroll
  for (int i = 0; i < Tile::kRowsHere; ++i) {
#pragma unroll
    for (int q = 0; q < Tile::kQuadsHere; ++q) {
      // The sum with zero frees a part's registers from the order in which a store of quads wants them, which
      // is the order that makes the product wait for the register file.
      const float4 x = part.quad(i, q);
      reduce_quad(target, Tile::row(lane, i), Tile::col(lane, 4 * q),
                  {x.x + 0.0f, x.y + 0.0f, x.z + 0.0f, x.w + 0.0f});
    }
  }
}

/// delta = rowsum(dO * O) of a q tile, by all warps: O comes from slow memory while a product is computed.
template <int Rows, int Dim, typename Element>
class DeltaRows {
 public:
  using Source = GlobalRows<const Element>;

  __device__ void fetch(Lane lane, const Source& out) {
    if (!out.quads()) return;
#pragma unroll
    for (int i = 0; i < kRowsHere; ++i) {
#pragma unroll
      for (int q = 0; q < kQuadsHere; ++q) raw_[i][q] = load_raw(out, row(lane, i), col(lane, q));
    }
  }
  /// `out` is that of the last fetch.
  __device__ void put(Lane lane, const Source& out, SharedTile<Dim> dout, float* delta) const {
#pragma unroll
    for (int i = 0; i < kRowsHere; ++i) {
      float4 sums = {0.0f, 0.0f, 0.0f, 0.0f};  // four short chains
#pragma unroll
      for (int q = 0; q < kQuadsHere; ++q) {
        const float4 o =
            out.quads() ? widen_quad<Element>(raw_[i][q]) : load_quad(out, row(lane, i), col(lane, q));
        const float4 d = load_chunk(dout.chunk(row(lane, i), col(lane, q) / 4));
        sums = {fmaf(d.x, o.x, sums.x), fmaf(d.y, o.y, sums.y), fmaf(d.z, o.z, sums.z),
                fmaf(d.w, o.w, sums.w)};
      }
      const float sum = row_sum(sums.x + sums.y + sums.z + sums.w);
      if (lane.col == 0) delta[row(lane, i)] = sum;
    }
  }

 private:
  static constexpr int kAllWarps = kBackwardGroups * kWarps;
  static constexpr int kRowsHere = Rows / (kAllWarps * kLaneRows), kQuadsHere = Dim / (4 * kLaneCols);
  __device__ static int row(Lane lane, int i) { return (lane.warp * kRowsHere + i) * kLaneRows + lane.row; }
  __device__ static int col(Lane lane, int q) { return 4 * (lane.col + kLaneCols * q); }
  RawQuad<Element> raw_[kRowsHere][kQuadsHere];
};

}  // namespace tilescope::cuda_cores
