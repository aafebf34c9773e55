// SPDX-License-Identifier: Apache-2.0
// gpu:decode, forward: one q tile and a split of its keys. Against gpu:flash2-mma: the q tile has 16 rows, so
// that packed heads fill it, and the warps share a tile's keys in place of its rows. They agree on the rows'
// maxima at every tile, so that P is rounded as elsewhere; their parts of O are summed once, behind the last
// tile, which gpu:split-k does at every tile. K and V come through a ring of buffers as deep as shared memory
// allows: nothing is computed that the copies would wait for.
// Source: Flash-Decoding (https://crfm.stanford.edu/2023/10/12/flashdecoding.html).
#pragma once

#include "gpu/kernels/decode/decode.hpp"
#include "gpu/kernels/decode/products.cuh"
#include "gpu/kernels/decode/rows.cuh"
#include "gpu/kernels/decode/scores.cuh"
#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/sm80/paged_tile.cuh"
#include "gpu/primitives/sm90/fences.cuh"

namespace tilescope::sm80 {

/// The state of the tile's rows in a warp, rows lane / 4 + 8 half. The maxima are those of all warps, sums
/// and O those of the lane's and the warp's own keys.
template <int kDBlocks>
struct DecodeState {
  float max[2], sum[2];
  WarpAccumulator<1, kDBlocks> out;

  __device__ __forceinline__ void clear() {
    max[0] = max[1] = kMinusInfinity;
    sum[0] = sum[1] = 0.0f;
    out.clear();
  }
};

/// What the warps tell each other of the rows: [warp][row].
template <int kWarps>
struct WarpRows {
  float (*values)[DecodeShape::kRows];

  __device__ float max(int row) const {
    float max = values[0][row];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) max = fmaxf(max, values[warp][row]);
    return max;
  }
  __device__ float sum(int row) const {
    float sum = values[0][row];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) sum += values[warp][row];
    return sum;
  }
};

/// Starts copying the rows of Q. Beyond them and their columns the tile is zero.
template <int kHeadDim, int kThreads>
__device__ __forceinline__ void load_rows(SharedTile<kHeadDim> tile, const KernelArguments& args,
                                          const DecodeRows& rows, int thread) {
  constexpr int kChunks = SharedTile<kHeadDim>::kChunks;
#pragma unroll
  for (int i = 0; i < DecodeShape::kRows * kChunks; i += kThreads) {
    const int row = (i + thread) / kChunks, chunk = (i + thread) % kChunks;
    const bool exists = rows.has(row) && 8 * chunk < args.head_dim;
    copy_async_16(tile.chunk_address(row, chunk),
                  rows.at<std::uint16_t>(args[TensorName::q], exists ? row : 0) + (exists ? 8 * chunk : 0),
                  exists);
  }
}

/// One tile of the online softmax, between two barriers: the warps agree on the rows' maxima.
/// @tparam kLog2Factor  P is kept 2^kLog2Factor times as large
template <int kLog2Factor, int kWarps, int kKeyBlocks, int kDBlocks>
__device__ __forceinline__ void shared_softmax_step(WarpAccumulator<1, kKeyBlocks>& s,
                                                    DecodeState<kDBlocks>& state,
                                                    const WarpRows<kWarps>& exchange, float scale, int warp,
                                                    int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float here = row_max_of_quad(half_row_max(s.tile[0], half));
    if (lane % 4 == 0) exchange.values[warp][8 * half + (lane >> 2)] = here;
  }
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float old_max = state.max[half];
    const float new_max = fmaxf(old_max, exchange.max(8 * half + (lane >> 2)));
    state.max[half] = new_max;
    float shift = exponent_shift(new_max, scale);
    // Added to the rounded shift, as rescale has it: a fused addition would differ by the rounding at each
    // step.
    if constexpr (kLog2Factor > 0) shift = __fadd_rn(shift, kLog2Factor);
    const float rescale = kLog2Factor > 0 ? exp2_approx(shift - (kLog2Factor - __fmul_rn(old_max, scale)))
                                          : rescale_factor(old_max, scale, shift);
    state.sum[half] = fmaf(state.sum[half], rescale, exponentiate_half_row(s.tile[0], half, scale, shift));
    scale_half_row(state.out.tile[0], half, rescale);
  }
}

/// Adds a warp's share of the state after a tile.
template <int kDBlocks>
__device__ __forceinline__ void log_state(const TileLogEntry& entry, const DecodeState<kDBlocks>& state,
                                          const DecodeRows& rows, int head_dim, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (!rows.has(8 * half + (lane >> 2)) || state.max[half] == kMinusInfinity) continue;
    if (warp == 0 && lane % 4 == 0)
      entry.add(&DeviceTileState::row_max, static_cast<double>(state.max[half]));
    entry.add(&DeviceTileState::row_sum, static_cast<double>(state.sum[half]));
  }
  entry.add(&DeviceTileState::accum, inside_sum(state.out, rows.count, head_dim, lane));
}

/// What the stored keys and values of a head are multiplied by, in shared memory: loaded once a CTA, past L1.
/// Of keys in the type of the products 1.
template <bool kFp8Keys>
struct KeyDescales {
  float* of_k_and_v;

  __device__ __forceinline__ void load(const KernelArguments& args, const CtaWork& work, int thread) const {
    if (!kFp8Keys || thread >= 2) return;
    const DeviceDescales& descales = thread == 0 ? args.descale_k : args.descale_v;
    of_k_and_v[thread] =
        descales.data == nullptr ? 1.0f : __ldcg(descales.data + work.batch * args.heads_kv + work.kv_head);
  }
  __device__ float k() const { return kFp8Keys ? of_k_and_v[0] : 1.0f; }
  __device__ float v() const { return kFp8Keys ? of_k_and_v[1] : 1.0f; }
};

/// Sums the warps' parts and stores eight normalised columns of a row a thread, in fp32 where the keys are
/// split.
template <ElementType kType, DecodeShape kShape, int kLog2Factor>
__device__ __forceinline__ void finish_tile(const KernelArguments& args, const DecodeArguments& decode,
                                            const DecodeRows& rows, const float* parts,
                                            const WarpRows<kShape.warps()>& sums, const float* maxima,
                                            const KeyDescales<kShape.fp8_keys>& descales, int split,
                                            int thread) {
  constexpr int kChunks = kShape.head_dim / 8;
  const bool partial = decode.splits.count > 1;
#pragma unroll 1
  for (int i = thread; i < DecodeShape::kRows * kChunks; i += kShape.threads()) {
    const int row = i / kChunks, col = i % kChunks * 8;
    if (!rows.has(row) || col >= args.head_dim) continue;
    float x[8] = {};
#pragma unroll
    for (int warp = 0; warp < kShape.warps(); ++warp) {
      const float* part = parts + (warp * DecodeShape::kRows + row) * kShape.part_row() + col;
#pragma unroll
      for (int e = 0; e < 8; ++e) x[e] += part[e];
    }
    const float normaliser = descales.v() * inverse_sum(sums.sum(row));
#pragma unroll
    for (float& value : x) value *= normaliser;
    if (partial) {
      auto* to = reinterpret_cast<float4*>(rows.at(args[TensorName::out_partial], decode, split, row) + col);
      to[0] = {x[0], x[1], x[2], x[3]};
      to[1] = {x[4], x[5], x[6], x[7]};
    } else {
      *reinterpret_cast<uint4*>(rows.at<std::uint16_t>(args[TensorName::out], row) + col) = {
          pack<kType>(x[0], x[1]), pack<kType>(x[2], x[3]), pack<kType>(x[4], x[5]), pack<kType>(x[6], x[7])};
    }
  }
  if (thread >= DecodeShape::kRows || !rows.has(thread)) return;
  *(partial ? rows.at(args[TensorName::lse_partial], decode, split, thread)
            : rows.at<float>(args[TensorName::lse], thread)) =
      row_lse(maxima[thread], fabsf(args.softmax_scale) * descales.k(),
              exp2f(-kLog2Factor) * sums.sum(thread));
}

/// Leaves what a warp has for finish_tile(). Nobody may still read tiles.
template <typename Products, DecodeShape kShape>
__device__ __forceinline__ void leave_part(const DecodeState<kShape.head_dim / 16>& state, float* parts,
                                           const WarpRows<kShape.warps()>& sums, float* maxima, int warp,
                                           int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 8 * half + (lane >> 2);
    const float sum = row_sum_of_quad(state.sum[half]);
    if (lane % 4 == 0) sums.values[warp][row] = sum;
    if (warp == 0 && lane % 4 == 0) maxima[row] = state.max[half];
    Products::leave_row(state.out, parts + (warp * DecodeShape::kRows + row) * kShape.part_row(), half, lane);
  }
}

/// CTA: one split of the keys of one q tile. Grid: args.grid. Dynamic shared memory: DecodeShape.
template <ElementType kType, int kHeadDim, bool kFp8Keys, bool kObserved, bool kPaged>
__global__ __launch_bounds__(
    DecodeShape{kHeadDim, kFp8Keys}.threads(),
    DecodeShape{kHeadDim, kFp8Keys}
        .ctas_per_sm()) void decode_forward(const __grid_constant__ KernelArguments args,
                                            const __grid_constant__ DecodeArguments decode) {
  constexpr DecodeShape kShape{kHeadDim, kFp8Keys};
  using Products = DecodeProducts<kType, kShape>;
  constexpr TileShape kTile = kShape.tile();
  constexpr int kStages = kShape.stages(), kAhead = kStages - 1, kThreads = kShape.threads();
  constexpr int kDBlocks = kHeadDim / 16;
  static_assert(kShape.part_bytes() <= kShape.rows() &&
                kTile.block_m * kHeadDim * 2 <= kShape.rows() - kShape.q());
  using Tile = Products::Tile;
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const WarpRows<kShape.warps()> exchange{
      reinterpret_cast<float(*)[DecodeShape::kRows]>(shared + kShape.rows())};
  gpu::sm90::let_next_kernel_begin();

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const CtaWork work = decode_work(args, decode);
  const VisibleBand band = batch_band<true>(args, work.batch);
  const DecodeRows rows(args, decode, work, kTile.block_m);
  const TileRange range = decode.splits.part_of(
      packed_kv_tiles(band, kTile, rows.first + rows.count, work.first_block), work.split);
  const auto rows_of = [&](TensorName name) -> GlobalRows {
    const DeviceTensor tensor = Products::halves(args[name]);
    return {tensor.head<std::uint16_t>(work.batch, work.kv_head), tensor.row_stride, band.seqlen_k,
            Products::halves(args.head_dim)};
  };
  const GlobalRows k_rows = rows_of(TensorName::k), v_rows = rows_of(TensorName::v);
  using Pages = PagesAhead<kTile.block_n, kAhead>;
  static_assert(kShape.pages() % 16 == 0 &&
                kShape.pages() + 4 * Pages::kSlots * Pages::kMost <= kShape.end());
  const Pages pages(reinterpret_cast<int*>(shared + kShape.pages()), args.kv_pages, work.batch);
  const auto copy_pages = [&](int step) {
    if (step >= range.count()) return;
    pages.copy(step, scan_tile(args.scan, range, work.wave_parity, step) * kTile.block_n, thread);
  };
  // A group of copies a tile, empty behind the last one, so that waiting for all but the newest groups waits
  // for this tile.
  const auto load_kv = [&](int step) {
    if (step < range.count()) {
      const int first_key = scan_tile(args.scan, range, work.wave_parity, step) * kTile.block_n;
      const int stage = step % kStages;
      if constexpr (kPaged) {
        load_paged_tiles<kTile.block_n, kThreads>(
            Tile{base + kShape.k(stage)}, Tile{base + kShape.v(stage)}, Products::halves(args[TensorName::k]),
            Products::halves(args[TensorName::v]), work.kv_head, pages.of_step(step, first_key),
            args.kv_pages.log2_size, first_key, band.seqlen_k, Products::halves(args.head_dim), thread);
        copy_pages(step + kAhead);
        return commit_copies();
      }
      load_tile<RowAccess::chunks, kTile.block_n, kThreads>(Tile{base + kShape.k(stage)}, k_rows, first_key,
                                                            thread);
      load_tile<RowAccess::chunks, kTile.block_n, kThreads>(Tile{base + kShape.v(stage)}, v_rows, first_key,
                                                            thread);
    }
    commit_copies();
  };

  const KeyDescales<kFp8Keys> descales{reinterpret_cast<float*>(shared + kShape.descales())};
  descales.load(args, work, thread);
  DecodeState<kDBlocks> state;
  state.clear();
  Fragment q[kDBlocks] = {};
  if (!range.empty()) {
    if constexpr (kPaged) {
      for (int step = 0; step < kAhead; ++step) copy_pages(step);
      commit_copies();
      wait_for_copies<0>();
      __syncthreads();
    }
    const SharedTile<kHeadDim> q_tile{base + kShape.q()};
    load_rows<kHeadDim, kThreads>(q_tile, args, rows, thread);
    commit_copies();
    for (int step = 0; step < kAhead; ++step) load_kv(step);
    wait_for_copies<kAhead>();
    __syncthreads();
    Products::load_queries(q, q_tile, lane);
  }
  const float scale = fmaxf(exponent_scale(args) * descales.k(), kLeastExponentScale);

#pragma unroll 1
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step), stage = step % kStages;
    const int first_key = n_block * kTile.block_n + warp * kShape.warp_keys();
    // load: this tile has arrived for every thread, and every warp is past the tile before, or past Q
    wait_for_copies<kAhead - 1>();
    __syncthreads();
    load_kv(step + kAhead);

    // compute: S = Q K^T, P, O += P V
    typename Products::Scores s;
    s.clear();
    Products::multiply_keys(s, q, Tile{base + kShape.k(stage)}, warp, lane);
    const TileLogEntry entry(kObserved ? args.log : DeviceTileLog{}, step, work.batch, work.first_head,
                             work.first_block, n_block);
    if (entry.open()) log_warp_scores(entry, args, band, rows, s, first_key, lane);
    mask_rows(s, args, SeenKeys(band, rows, lane), range.full(n_block), first_key, lane);
    shared_softmax_step<Products::kLog2Factor>(s, state, exchange, scale, warp, lane);
    if (entry.open()) entry.add(&DeviceTileState::probs, block_sum(s, rounded<Products::kProbs>));
    Products::multiply_values(state.out, s, Tile{base + kShape.v(stage)}, warp, lane);
    if (entry.open()) log_state(entry, state, rows, args.head_dim, warp, lane);
  }

  // finish: sum over the warps, normalise once
  __syncthreads();
  auto* const parts = reinterpret_cast<float*>(shared);
  float* const maxima = exchange.values[kShape.warps()];
  leave_part<Products, kShape>(state, parts, exchange, maxima, warp, lane);
  __syncthreads();
  finish_tile<kType, kShape, Products::kLog2Factor>(args, decode, rows, parts, exchange, maxima, descales,
                                                    work.split, thread);
}

}  // namespace tilescope::sm80
