// SPDX-License-Identifier: Apache-2.0
// Parts of a step of dkdv.cuh, and its tiles in shared memory: dS and the operands that it leaves, dQ at the
// edges of the matrix, how dK and dV leave.
#pragma once

#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/primitives/common/reduce_add.cuh"

namespace tilescope::sm80 {

/// The tiles of the pass in shared memory, and the addresses of its LSE and delta.
template <int kHeadDim, MmaDkdvShape kShape>
struct DkdvSharedMemory {
  static constexpr int kValueDim = kShape.values(kHeadDim);

  TILESCOPE_HOST_DEVICE static constexpr MmaDkdvLayout layout() {
    constexpr MmaDkdvLayout kLayout = layout_on(kShape, kHeadDim, kComputeCapabilityMajor);
    static_assert(kLayout.end() <= max_shared_bytes(kComputeCapabilityMajor));
    return kLayout;
  }

  std::uint32_t base;

  __device__ SharedTile<kHeadDim> k() const { return {base + layout().k()}; }
  __device__ SharedTile<kValueDim> v() const { return {base + layout().v()}; }
  __device__ SharedTile<kHeadDim> q(int stage) const { return {base + layout().q(stage)}; }
  __device__ SharedTile<kValueDim> dout(int stage) const { return {base + layout().dout(stage)}; }
  __device__ SharedTile<kShape.tile.block_m> probs() const { return {base + layout().probs()}; }
  __device__ SharedTile<kShape.tile.block_m> dscores() const { return {base + layout().dscores()}; }
  __device__ std::uint32_t lse(int stage) const { return base + layout().lse(stage); }
  __device__ std::uint32_t delta(int stage) const { return base + layout().delta(stage); }
};

/// Adds the part of a warp's dQ that lies inside the matrix: `rows` rows and `cols` columns from its corner
/// on.
/// A lane's two columns are added at once where rows lie so, and four lanes have a sector; else even and odd
/// columns are added apart, and each sector crosses twice.
/// @param in_pairs  whether each row begins at 8 bytes, and has an even number of columns
/// @param target this lane's first row, the corner's column
/// @param is_reduced  tells which of the two rows of blocks are
/// @tparam kStep  from one of the warp's columns of blocks to the next
template <int kStep, int kColBlocks, typename IsReduced>
__device__ __forceinline__ void reduce_edge(const WarpAccumulator<2, kColBlocks>& dq, float* target,
                                            std::int64_t row_stride, int rows, int cols, int lane,
                                            bool in_pairs, IsReduced is_reduced) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!is_reduced(i)) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (16 * i + 8 * half >= rows) continue;
#pragma unroll
      for (int j = 0; j < 2 * kColBlocks; ++j) {
        const int col = 16 * kStep * (j / 2) + 8 * (j % 2) + 2 * (lane & 3);
        float* const at = target + (16 * i + 8 * half) * row_stride + col;
        const float2 sums{dq.tile[i][j].x[2 * half], dq.tile[i][j].x[2 * half + 1]};
        if (col >= cols) continue;
        if (in_pairs) {
          reduce_add(at, sums);
        } else {
          reduce_add(at, sums.x);
          if (col + 1 < cols) reduce_add(at + 1, sums.y);
        }
      }
    }
  }
}

/// Whether the rows of an fp32 tensor start at 16-byte boundaries.
__device__ __forceinline__ bool rows_in_quads(const DeviceTensor& tensor) {
  return ((tensor.batch_stride | tensor.head_stride | tensor.row_stride) & 3) == 0;
}

/// A warp's share of a tile's scores: 32 keys and some queries.
struct DkdvBlock {
  int batch_head;
  int first_key, first_query;  // of the warp
  int key_block, query_chunk;  // in the tile: of 16 keys, of 8 queries
  std::uint32_t lane_rows;     // bytes to the lane's first LSE or delta
  int lane;
};

/// dS^T = P^T * (dP^T - delta), with P before its dropout and rounding. P^T and dS^T are left as operands,
/// and in shared memory for the group's other warps and, dS, for those that compute dQ.
/// @param derivatives  of the scores' modifiers, by which dS is multiplied where there are any
template <ElementType kType, bool kDropout, int kQueryBlocks, typename Shared, typename Seen,
          typename Derivatives>
__device__ __forceinline__ void make_dscores(
    const KernelArguments& args, const Shared& shared, int stage, const DkdvBlock& block, const Seen& sees,
    const TileLogEntry& entry, WarpAccumulator<2, kQueryBlocks>& p, WarpAccumulator<2, kQueryBlocks>& ds,
    Fragment (&p_own)[kQueryBlocks][2], Fragment (&ds_own)[kQueryBlocks][2], const Derivatives& derivatives) {
  const int lane = block.lane;
  double dprobs_sum = 0.0;
#pragma unroll
  for (int j = 0; j < 2 * kQueryBlocks; ++j) {
    const float2 delta = load_shared_float2(shared.delta(stage) + block.lane_rows + 32 * j);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Accumulator& prob = p.tile[i][j];
      Accumulator& dprob = ds.tile[i][j];
      KeepBits keep = 0xF;
      if constexpr (kDropout) {
        if (!Derivatives::kMayBe || args.dropout.active()) {
          keep = keep_keys_by_queries(args.dropout, block.batch_head, block.first_query + 8 * j,
                                      block.first_key + 16 * i, lane);
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float factor = !kDropout ? 1.0f : keep >> e & 1 ? args.dropout.keep_scale : 0.0f;
        const float dropped = factor * dprob.x[e];
        if (entry.open() && visible(sees, block.first_query + 8 * j + 2 * (lane & 3) + e % 2,
                                    block.first_key + 16 * i + 8 * (e / 2) + (lane >> 2))) {
          dprobs_sum += static_cast<double>(dropped);
        }
        dprob.x[e] = prob.x[e] * (dropped - (e % 2 == 0 ? delta.x : delta.y));
        if constexpr (!Derivatives::kMayBe) prob.x[e] *= factor;
      }
      if constexpr (Derivatives::kMayBe) {
        if (derivatives.any()) {
          const float2 lse = load_shared_float2(shared.lse(stage) + block.lane_rows + 32 * j);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int query = block.first_query + 8 * j + 2 * (lane & 3) + e % 2;
            const int key = block.first_key + 16 * i + 8 * (e / 2) + (lane >> 2);
            dprob.x[e] *= derivatives.of(prob.x[e], lse_exponent(e % 2 == 0 ? lse.x : lse.y),
                                         key - query - args.band.offset());
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) prob.x[e] *= keep >> e & 1 ? args.dropout.keep_scale : 0.0f;
      }
      Fragment& prob_half = p_own[j / 2][i];
      Fragment& dprob_half = ds_own[j / 2][i];
      const int r = 2 * (j % 2);
      prob_half.x[r] = pack<kType>(prob.x[0], prob.x[1]);
      prob_half.x[r + 1] = pack<kType>(prob.x[2], prob.x[3]);
      dprob_half.x[r] = pack<kType>(dprob.x[0], dprob.x[1]);
      dprob_half.x[r + 1] = pack<kType>(dprob.x[2], dprob.x[3]);
      const int chunk = block.query_chunk + j;
      shared.probs().store(lane, block.key_block + i, chunk, prob_half.x[r], prob_half.x[r + 1]);
      shared.dscores().store(lane, block.key_block + i, chunk, dprob_half.x[r], dprob_half.x[r + 1]);
    }
  }
  if (entry.open()) {
    entry.add(&DeviceTileState::dprobs, dprobs_sum);
    entry.add(&DeviceTileState::probs, block_sum(p, rounded<kType>));
    entry.add(&DeviceTileState::dscores, block_sum(ds, rounded<kType>));
  }
}

/// The scale of dK once, and both to memory through the room of K and V.
template <ElementType kType, MmaDkdvShape kShape, RowAccess kAccess, typename Columns, typename ValueColumns,
          typename Arguments, typename Shared>
__device__ __forceinline__ void finish_dkdv(const Arguments& args, const Shared& shared, int batch,
                                            int kv_head, int first_key, int warp_n, int warp_m, int lane,
                                            int thread, WarpAccumulator<2, Columns::kBlocks>& dk,
                                            const WarpAccumulator<2, ValueColumns::kBlocks>& dv) {
  dk.scale(args.softmax_scale);
  __syncthreads();
  stage_output<kType, Columns::kStep>(shared.k(), dk, 2 * warp_n, Columns::first(warp_m), lane);
  stage_output<kType, ValueColumns::kStep>(shared.v(), dv, 2 * warp_n, ValueColumns::first(warp_m), lane);
  __syncthreads();
  store_tile<kAccess, kShape.tile.block_n, kShape.threads()>(
      shared.k(), head_rows(args, TensorName::dk, batch, kv_head, args.band.seqlen_k), first_key, thread);
  store_tile<kAccess, kShape.tile.block_n, kShape.threads()>(
      shared.v(), value_rows(args, TensorName::dv, batch, kv_head, args.band.seqlen_k), first_key, thread);
}

}  // namespace tilescope::sm80
