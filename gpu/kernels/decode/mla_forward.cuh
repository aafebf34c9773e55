// SPDX-License-Identifier: Apache-2.0
// gpu:mla-decode, forward: one q tile of up to 64 packed rows and a split of its latent keys. Against
// gpu:decode: a tile of keys in shared memory is read along its rows for S = Q K^T and along its columns for
// O += P V, so that nothing of V crosses; Q is too wide for registers and stays in shared memory; warps share
// the rows and keys of S, which P crosses through shared memory to where warps share the columns of O.
#pragma once

#include "gpu/kernels/decode/latent_keys.cuh"
#include "gpu/kernels/decode/scores.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm90/fences.cuh"

namespace tilescope::sm80 {

template <MlaShape kShape>
using MlaScores = WarpAccumulator<1, kShape.warp_keys() / 16>;
template <int kRows>
using MlaOut = WarpAccumulator<kRows / 16, MlaShape::kWarpColumns / 16>;

/// The state of a warp's 16 rows of S, rows lane / 4 + 8 half. The maxima are those of both key groups, sums
/// those of the lane's own keys.
struct MlaRowState {
  float max[2] = {kMinusInfinity, kMinusInfinity}, sum[2] = {0.0f, 0.0f};
};

/// What key groups tell each other of the rows, [key group][row], and a number of each row for all warps:
/// what O is rescaled by, behind the last tile the maximum.
template <MlaShape kShape>
struct MlaRows {
  float (*values)[kShape.rows];
  float* factors;

  __device__ float max(int row) const {
    float max = values[0][row];
#pragma unroll
    for (int group = 1; group < kShape.key_groups(); ++group) max = fmaxf(max, values[group][row]);
    return max;
  }
  __device__ float sum(int row) const {
    float sum = values[0][row];
#pragma unroll
    for (int group = 1; group < kShape.key_groups(); ++group) sum += values[group][row];
    return sum;
  }
};

/// Where a warp stands in S: 16 rows from first_row on, and a group of keys. Of S some have none.
struct ScorePlace {
  int first_row, key_group;
  bool computes;
};

/// Tells the largest scores of a warp's rows and keys.
template <MlaShape kShape>
__device__ __forceinline__ void tell_maxima(const MlaScores<kShape>& s, const MlaRows<kShape>& shared,
                                            const ScorePlace& place, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float here = row_max_of_quad(half_row_max(s.tile[0], half));
    if (lane % 4 == 0) shared.values[place.key_group][place.first_row + 8 * half + (lane >> 2)] = here;
  }
}

/// One tile of the online softmax of a warp's rows and keys, when all have told their maxima; P is left in
/// shared memory.
template <ElementType kType, MlaShape kShape>
__device__ __forceinline__ void mla_softmax_step(MlaScores<kShape>& s, MlaRowState& state,
                                                 const MlaRows<kShape>& shared,
                                                 SharedTile<MlaShape::kKeys> probs, float scale,
                                                 const ScorePlace& place, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = place.first_row + 8 * half + (lane >> 2);
    const float old_max = state.max[half], new_max = fmaxf(old_max, shared.max(row));
    state.max[half] = new_max;
    const float shift = exponent_shift(new_max, scale), rescale = rescale_factor(old_max, scale, shift);
    state.sum[half] = fmaf(state.sum[half], rescale, exponentiate_half_row(s.tile[0], half, scale, shift));
    if (place.key_group == 0 && lane % 4 == 0) shared.factors[row] = rescale;
  }
  stage_output<kType>(probs, s, place.first_row / 16, kShape.warp_keys() / 16 * place.key_group, lane);
}

/// Takes a warp's columns of O to the maxima of this tile.
template <int kRows>
__device__ __forceinline__ void rescale_columns(MlaOut<kRows>& out, const float* factors, int lane) {
  float factor[kRows / 8];
  bool changes = false;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    factor[i] = factors[8 * i + (lane >> 2)];
    changes = changes || factor[i] != 1.0f;
  }
  if (!__any_sync(0xFFFFFFFFu, changes)) return;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) scale_half_row(out.tile[i / 2], i % 2, factor[i]);
}

/// O += P V of a warp's columns, V being the first columns of the tile of keys.
template <ElementType kType, int kRows>
__device__ __forceinline__ void multiply_latent_values(MlaOut<kRows>& out, SharedTile<MlaShape::kKeys> probs,
                                                       LatentTile keys, int warp, int lane) {
  const LdmatrixByColumns<MlaShape::kKeys> p_view(probs, lane);
  const auto v_view =
      LdmatrixByColumns<MlaShape::kHeadDim>(keys, lane).at(0, MlaShape::kWarpColumns / 16 * warp);
#pragma unroll
  for (int k = 0; k < MlaShape::kKeys / 16; ++k) {
    Fragment p[kRows / 16];
#pragma unroll
    for (int i = 0; i < kRows / 16; ++i) p[i] = p_view.load(i, k);
    step_ab<kType>(out, p, v_view, k);
  }
}

/// Adds a warp's share of the state after a tile to its log.
template <int kRows>
__device__ __forceinline__ void log_mla_state(const TileLogEntry& entry, const MlaRowState& state,
                                              const MlaOut<kRows>& out, const DecodeRows& rows, int columns,
                                              const ScorePlace& place, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!rows.has(place.first_row + 8 * half + (lane >> 2)) || state.max[half] == kMinusInfinity) continue;
    if (place.key_group == 0 && lane % 4 == 0)
      entry.add(&DeviceTileState::row_max, static_cast<double>(state.max[half]));
    entry.add(&DeviceTileState::row_sum, static_cast<double>(state.sum[half]));
  }
  entry.add(&DeviceTileState::accum,
            inside_sum(out, rows.count, columns - MlaShape::kWarpColumns * warp, lane));
}

/// Leaves what a warp has of O and of the rows for store_rows(). Nobody may still read tiles.
template <MlaShape kShape>
__device__ __forceinline__ void leave_columns(const MlaRowState& state, const MlaOut<kShape.rows>& out,
                                              float* tile, const MlaRows<kShape>& shared,
                                              const ScorePlace& place, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2 && place.computes; ++half) {
    const int row = place.first_row + 8 * half + (lane >> 2);
    const float sum = row_sum_of_quad(state.sum[half]);
    if (lane % 4 == 0) shared.values[place.key_group][row] = sum;
    if (place.key_group == 0 && lane % 4 == 0) shared.factors[row] = state.max[half];
  }
#pragma unroll
  for (int i = 0; i < kShape.rows / 8; ++i) {
    float* const row = tile + (8 * i + (lane >> 2)) * MlaShape::kOutRow + MlaShape::kWarpColumns * warp;
#pragma unroll
    for (int j = 0; j < MlaShape::kWarpColumns / 8; ++j) {
      const Accumulator& block = out.tile[i / 2][j];
      *reinterpret_cast<float2*>(row + 8 * j + 2 * (lane & 3)) = {block.x[i % 2 * 2], block.x[i % 2 * 2 + 1]};
    }
  }
}

/// Stores normalised rows, 16 bytes a thread, in fp32 where the keys are split, and their LSE.
template <ElementType kType, bool kPartial, MlaShape kShape>
__device__ __forceinline__ void store_rows(const KernelArguments& args, const DecodeArguments& decode,
                                           const DecodeRows& rows, const float* tile,
                                           const MlaRows<kShape>& shared, int split, int thread) {
  constexpr int kAtOnce = kPartial ? 4 : 8, kChunks = MlaShape::kValueDim / kAtOnce;
#pragma unroll 4
  for (int i = thread; i < kShape.rows * kChunks; i += MlaShape::kThreads) {
    const int row = i / kChunks, col = i % kChunks * kAtOnce;
    if (!rows.has(row) || col >= decode.columns) continue;
    const float normaliser = inverse_sum(shared.sum(row));
    const auto* const from = reinterpret_cast<const float4*>(tile + row * MlaShape::kOutRow + col);
    const float4 x = from[0];
    if constexpr (kPartial) {
      *reinterpret_cast<float4*>(rows.at(args[TensorName::out_partial], decode, split, row) + col) = {
          x.x * normaliser, x.y * normaliser, x.z * normaliser, x.w * normaliser};
    } else {
      const float4 y = from[1];
      *reinterpret_cast<uint4*>(rows.at<std::uint16_t>(args[TensorName::out], row) + col) = {
          pack<kType>(x.x * normaliser, x.y * normaliser), pack<kType>(x.z * normaliser, x.w * normaliser),
          pack<kType>(y.x * normaliser, y.y * normaliser), pack<kType>(y.z * normaliser, y.w * normaliser)};
    }
  }
  if (thread >= kShape.rows || !rows.has(thread)) return;
  *(kPartial ? rows.at(args[TensorName::lse_partial], decode, split, thread)
             : rows.at<float>(args[TensorName::lse], thread)) =
      row_lse(shared.factors[thread], fabsf(args.softmax_scale), shared.sum(thread));
}

/// Of which mla_wgmma/ has code for the same device.
template <int kRows>
#ifdef TILESCOPE_HAS_SM90
inline constexpr bool kRunsByWgmma = kRows >= 32 && kComputeCapabilityMajor == 9;
#else
inline constexpr bool kRunsByWgmma = false;
#endif

/// CTA: one split of the keys of one q tile. Grid: args.grid. Dynamic shared memory: MlaShape.
template <ElementType kType, int kRows, bool kObserved, bool kPaged>
__global__ __launch_bounds__(MlaShape::kThreads,
                             1) void mla_forward(const __grid_constant__ KernelArguments args,
                                                 const __grid_constant__ DecodeArguments decode) {
  if constexpr (kRunsByWgmma<kRows>) return;
  constexpr MlaShape kShape = MlaShape::on(kRows, kComputeCapabilityMajor);
  static_assert(4 * kRows * MlaShape::kOutRow <= kShape.p());
  constexpr bool kLoadsAhead = kShape.stages > 1;
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const LatentTile q_tile{base + MlaShape::q()};
  const SharedTile<MlaShape::kKeys> probs{base + kShape.p()};
  const MlaRows<kShape> exchange{reinterpret_cast<float(*)[kRows]>(shared + kShape.exchange()),
                                 reinterpret_cast<float*>(shared + kShape.factors())};
  gpu::sm90::let_next_kernel_begin();

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const ScorePlace place{16 * (warp % kShape.row_groups()), warp / kShape.row_groups(),
                         kShape.score_warps() == MlaShape::kWarps || warp < kShape.score_warps()};
  const CtaWork work = decode_work(args, decode);
  const VisibleBand band = batch_band<true>(args, work.batch);
  const DecodeRows rows(args, decode, work, kRows), own = rows.from(place.first_row);
  const TileRange range = decode.splits.part_of(
      packed_kv_tiles(band, kShape.tile(), rows.first + rows.count, work.first_block), work.split);
  const LatentKeys<kPaged> keys(args, work, band.seqlen_k, shared + kShape.pages());
  const auto key_tile = [&](int step) { return LatentTile{base + kShape.k(step % kShape.stages)}; };
  const auto first_key_of = [&](int step) {
    return scan_tile(args.scan, range, work.wave_parity, step) * MlaShape::kKeys;
  };
  // A group of copies a tile, with what finds the next.
  const auto find_keys = [&](int step) {
    if (step < range.count()) keys.find(step, first_key_of(step), thread);
  };
  const auto load_keys = [&](int step) {
    if (step < range.count()) keys.load(key_tile(step), step, first_key_of(step), args.head_dim, thread);
    find_keys(step + 1);
    commit_copies();
  };

  MlaRowState state;
  MlaOut<kRows> out;
  out.clear();
  if (!range.empty()) {
    if constexpr (kPaged) {
      find_keys(0);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
    }
    load_latent_rows<kRows>(q_tile, args.head_dim, thread, [&](int row) -> LatentRow {
      const bool exists = rows.has(row);
      return {rows.at<const std::uint16_t>(args[TensorName::q], exists ? row : 0), exists};
    });
    load_keys(0);
  }
  const float scale = exponent_scale(args);
  const SeenKeys seen(band, own, lane);

#pragma unroll 1
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step);
    const int first_key = n_block * MlaShape::kKeys + place.key_group * kShape.warp_keys();
    // load: this tile has arrived for every thread, and every warp is past the tile before
    wait_for_copies<0>();
    __syncthreads();
    if constexpr (kLoadsAhead) load_keys(step + 1);

    // compute: S = Q K^T, P, O += P V
    const TileLogEntry entry(kObserved ? args.log : DeviceTileLog{}, step, work.batch, work.first_head,
                             work.first_block, n_block);
    MlaScores<kShape> s;
    if (place.computes) {
      s.clear();
      multiply_abt<kType, MlaShape::kHeadDim>(
          s, LdmatrixByColumns<MlaShape::kHeadDim>(q_tile, lane).at(place.first_row / 16, 0),
          LdmatrixByRows<MlaShape::kHeadDim>(key_tile(step), lane)
              .at(kShape.warp_keys() / 16 * place.key_group, 0));
      if (entry.open()) log_warp_scores(entry, args, band, own, s, first_key, lane);
      mask_rows(s, args, seen, range.full(n_block), first_key, lane);
      tell_maxima<kShape>(s, exchange, place, lane);
    }
    __syncthreads();
    if (place.computes) {
      mla_softmax_step<kType>(s, state, exchange, probs, scale, place, lane);
      if (entry.open()) entry.add(&DeviceTileState::probs, block_sum(s, rounded<kType>));
    }
    __syncthreads();
    rescale_columns<kRows>(out, exchange.factors, lane);
    multiply_latent_values<kType, kRows>(out, probs, key_tile(step), warp, lane);
    if (entry.open()) {
      log_mla_state<kRows>(entry, state, out, rows, decode.columns, place, warp, lane);
    }
    if constexpr (!kLoadsAhead) {
      __syncthreads();
      load_keys(step + 1);
    }
  }

  // finish: normalise once
  __syncthreads();
  auto* const tile = reinterpret_cast<float*>(shared);
  leave_columns<kShape>(state, out, tile, exchange, place, warp, lane);
  __syncthreads();
  if (decode.splits.count > 1) {
    store_rows<kType, true>(args, decode, rows, tile, exchange, work.split, thread);
  } else {
    store_rows<kType, false>(args, decode, rows, tile, exchange, work.split, thread);
  }
}

}  // namespace tilescope::sm80
