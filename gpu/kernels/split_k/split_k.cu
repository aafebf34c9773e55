// SPDX-License-Identifier: Apache-2.0
// gpu:split-k, forward. Every warp has all rows of Q and a quarter of a tile's keys. The warps must agree on
// the rows' maxima before they can exponentiate, and add up their parts of O after: both go through shared
// memory, at every tile, with a barrier each. FlashAttention-2 splits the rows instead and needs neither
// (arXiv:2307.08691, section 3.3).
#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/kernels/split_k/split_k.hpp"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"

namespace tilescope::sm80 {
namespace {

constexpr int kWarps = SplitK::kWarps, kThreads = 32 * kWarps, kDim = SplitK::kHeadDim;
constexpr TileShape kTile = SplitK::kTile;
constexpr int kMBlocks = kTile.block_m / 16;  // of the scores: a warp has all rows ...
constexpr int kWarpKeys = kTile.block_n / kWarps;
constexpr int kDBlocks = kDim / 16;
static_assert(kWarpKeys == 16 && kMBlocks == kWarps, "... and of O one block of 16");

using Part = WarpAccumulator<kMBlocks, kDBlocks>;

/// A row's value from every warp: maxima, then sums.
struct RowExchange {
  float (*values)[kTile.block_m];  // [warp][row]

  __device__ float max(int row) const {
    return fmaxf(fmaxf(values[0][row], values[1][row]), fmaxf(values[2][row], values[3][row]));
  }
  __device__ float sum(int row) const {
    return (values[0][row] + values[1][row]) + (values[2][row] + values[3][row]);
  }
};

/// The warps' parts of O.
struct PartExchange {
  float* values;  // [warp][row][SplitK::kPartRow]

  __device__ float2* at(int warp, int row, int col) const {
    return reinterpret_cast<float2*>(values + (warp * kTile.block_m + row) * SplitK::kPartRow + col);
  }
  __device__ void put(int warp, const Part& part, int lane) const {
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kDBlocks; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          *at(warp, 16 * i + 8 * half + (lane >> 2), 8 * j + 2 * (lane & 3)) =
              make_float2(part.tile[i][j].x[2 * half], part.tile[i][j].x[2 * half + 1]);
        }
      }
    }
  }
  /// out += the parts of all warps, of the 16 rows from `first_row` on.
  __device__ void add_to(WarpAccumulator<1, kDBlocks>& out, int first_row, int lane) const {
#pragma unroll
    for (int j = 0; j < 2 * kDBlocks; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int warp = 0; warp < kWarps; ++warp) {
          const float2 part = *at(warp, first_row + 8 * half + (lane >> 2), 8 * j + 2 * (lane & 3));
          out.tile[0][j].x[2 * half] += part.x;
          out.tile[0][j].x[2 * half + 1] += part.y;
        }
      }
    }
  }
};

/// Running maxima and sums of all rows of the tile: rows 16 i + 8 half + lane / 4. Sums are those of the
/// lane's own columns until the end.
struct AllRows {
  float max[kMBlocks][2], sum[kMBlocks][2];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int i = 0; i < kMBlocks; ++i) {
        max[i][half] = kMinusInfinity;
        sum[i][half] = 0.0f;
      }
    }
  }
};

/// This warp's value of every row, for the others: value(i, half).
template <typename Value>
__device__ __forceinline__ void put_rows(const RowExchange& exchange, int warp, int lane, Value value) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float here = value(i, half);
      if (lane % 4 == 0) exchange.values[warp][16 * i + 8 * half + (lane >> 2)] = here;
    }
  }
}

/// Scores become un-normalised probabilities, by the maxima that the warps have agreed on.
__device__ __forceinline__ void exponentiate(WarpAccumulator<kMBlocks, 1>& s, AllRows& all,
                                             const RowExchange& exchange, float scale, int lane) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float old_max = all.max[i][half];
      const float new_max = fmaxf(old_max, exchange.max(16 * i + 8 * half + (lane >> 2)));
      all.max[i][half] = new_max;
      const float shift = exponent_shift(new_max, scale);
      const float here = exponentiate_half_row(s.tile[i], half, scale, shift);
      all.sum[i][half] = fmaf(all.sum[i][half], rescale_factor(old_max, scale, shift), here);
    }
  }
}

/// O of the warp's own rows, of the maxima before, to those that the warps have agreed on.
__device__ __forceinline__ void rescale(WarpAccumulator<1, kDBlocks>& out, float (&own_max)[2],
                                        const RowExchange& exchange, float scale, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float new_max = fmaxf(own_max[half], exchange.max(16 * warp + 8 * half + (lane >> 2)));
    const float shift = exponent_shift(new_max, scale);
    const float factor = rescale_factor(own_max[half], scale, shift);
    own_max[half] = new_max;
    scale_half_row(out.tile[0], half, factor);
  }
}

/// Adds the state after a tile to the log. `rows_inside` and `cols_inside` count from the tile's corner.
__device__ __forceinline__ void log_state(const TileLogEntry& entry, const AllRows& all,
                                          const WarpAccumulator<1, kDBlocks>& out, int rows_inside,
                                          int cols_inside, int warp, int lane) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool seen = all.max[i][half] != kMinusInfinity;
      if (!seen || 16 * i + 8 * half + (lane >> 2) >= rows_inside) continue;
      if (warp == 0 && lane % 4 == 0)
        entry.add(&DeviceTileState::row_max, static_cast<double>(all.max[i][half]));
      entry.add(&DeviceTileState::row_sum, static_cast<double>(all.sum[i][half]));
    }
  }
  entry.add(&DeviceTileState::accum, inside_sum(out, rows_inside - 16 * warp, cols_inside, lane));
}

/// CTA: one q tile of one head. Grid: args.grid.
template <ElementType kType, Features kFeatures>
__global__ __launch_bounds__(kThreads, SplitK::kCtasPerSm) void split_k_forward(
    const __grid_constant__ KernelArguments args) {
  constexpr RowAccess kAccess = is_general(kFeatures) ? RowAccess::elements : RowAccess::chunks;
  using Tile = SharedTile<kDim>;
  using Layout = SplitK::Layout;
  static_assert(Layout::end() <= max_shared_bytes(kComputeCapabilityMajor));
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const Tile q_tile{base + Layout::tiles().q()};
  const auto k_tile = [&](int stage) { return Tile{base + Layout::tiles().k(stage)}; };
  const auto v_tile = [&](int stage) { return Tile{base + Layout::tiles().v(stage)}; };
  const PartExchange parts{reinterpret_cast<float*>(shared + Layout::parts())};
  const RowExchange rows{reinterpret_cast<float(*)[kTile.block_m]>(shared + Layout::rows())};

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const CtaWork work = query_work<int>(args);
  const int batch = work.batch, head = work.first_head, m_block = work.first_block;
  const int first_query = m_block * kTile.block_m;
  const TileRange range = kv_tiles(args.band, kTile, m_block);
  const GlobalRows k_rows = head_rows(args, TensorName::k, batch, work.kv_head, args.band.seqlen_k);
  const GlobalRows v_rows = head_rows(args, TensorName::v, batch, work.kv_head, args.band.seqlen_k);
  const auto load_kv = [&](int step) {
    const int first_key = scan_tile(args.scan, range, work.wave_parity, step) * kTile.block_n;
    load_tile<kAccess, kTile.block_n, kThreads>(k_tile(step % 2), k_rows, first_key, thread);
    load_tile<kAccess, kTile.block_n, kThreads>(v_tile(step % 2), v_rows, first_key, thread);
    commit_copies();
  };

  const float scale = exponent_scale(args);
  AllRows all;
  all.clear();
  float own_max[2] = {kMinusInfinity, kMinusInfinity};  // of the rows of `out`, lane / 4 and 8 more
  WarpAccumulator<1, kDBlocks> out;                     // rows 16 warp ... 16 warp + 15
  out.clear();
  if (!range.empty()) {
    load_tile<kAccess, kTile.block_m, kThreads>(
        q_tile, head_rows(args, TensorName::q, batch, head, args.band.seqlen_q), first_query, thread);
    load_kv(0);
  }

#pragma unroll 1
  for (int step = 0; step < range.count(); ++step) {
    note_step(args, step);
    const int n_block = scan_tile(args.scan, range, work.wave_parity, step);
    wait_for_copies<0>();
    __syncthreads();
    if (step + 1 < range.count()) load_kv(step + 1);

    WarpAccumulator<kMBlocks, 1> s;
    s.clear();
    multiply_abt<kType, kDim>(s, LdmatrixByColumns<kDim>(q_tile, lane),
                              LdmatrixByRows<kDim>(k_tile(step % 2), lane).at(warp, 0));
    const int first_key = n_block * kTile.block_n + warp * kWarpKeys;
    const TileLogEntry entry(tile_log<kFeatures>(args), step, batch, head, m_block, n_block);
    log_scores<false>(entry, args, args.band, s, first_query, first_key, lane);
    sign_and_mask(s, args, args.band, range.full(n_block), first_query, first_key, lane);

    // The rows' maxima, which the warps must agree on.
    put_rows(rows, warp, lane,
             [&](int i, int half) { return row_max_of_quad(half_row_max(s.tile[i], half)); });
    __syncthreads();
    exponentiate(s, all, rows, scale, lane);
    if (entry.open()) entry.add(&DeviceTileState::probs, block_sum(s, rounded<kType>));

    // This warp's part of O, and the sum over the warps.
    Part part;
    part.clear();
    Fragment p[kMBlocks];
#pragma unroll
    for (int i = 0; i < kMBlocks; ++i) p[i] = as_left_operand<kType>(s.tile[i][0], s.tile[i][1]);
    step_ab<kType>(part, p, LdmatrixByColumns<kDim>(v_tile(step % 2), lane).at(warp, 0), 0);
    parts.put(warp, part, lane);
    __syncthreads();
    rescale(out, own_max, rows, scale, warp, lane);
    parts.add_to(out, 16 * warp, lane);
    if (entry.open()) {
      log_state(entry, all, out, args.band.seqlen_q - first_query, args.head_dim, warp, lane);
    }
  }

  // The rows' sums over the warps; then as gpu:flash2-mma, each warp its own rows.
  __syncthreads();
  put_rows(rows, warp, lane, [&](int i, int half) { return row_sum_of_quad(all.sum[i][half]); });
  __syncthreads();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 16 * warp + 8 * half + (lane >> 2);
    finish_row(args, batch, head, first_query + row, own_max[half], rows.sum(row), out.tile[0], half, lane);
  }
  stage_output<kType>(q_tile, out, warp, 0, lane);
  __syncthreads();
  store_tile<kAccess, kTile.block_m, kThreads>(
      q_tile, head_rows(args, TensorName::out, batch, head, args.band.seqlen_q), first_query, thread);
}

template <Features kFeatures>
void launch_as(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  launch_pass(program.problem.dtype == ElementType::fp16 ? split_k_forward<ElementType::fp16, kFeatures>
                                                         : split_k_forward<ElementType::bf16, kFeatures>,
              program, SplitK::launch_shape(program), arguments, stream);
}

}  // namespace
}  // namespace tilescope::sm80

void tilescope::SplitK::launch(const TileProgram& program, const KernelArguments& arguments,
                               CUstream_st* stream) {
  const bool general = arguments.log.states || !sm80::operands_in_chunks(arguments);
  general ? sm80::launch_as<sm80::Features::general>(program, arguments, stream)
          : sm80::launch_as<sm80::Features::plain>(program, arguments, stream);
}
