// SPDX-License-Identifier: Apache-2.0
// gpu:flash1-mma: FlashAttention, Algorithm 1, on tensor cores.
//
// Against gpu:flash2-mma: the loops change places, and nothing else does. A CTA owns a whole head, keeps a K,
// V tile and streams Q past it; O, l and m of a q tile cross the SM's boundary both ways at each step. They
// always belong to the same threads, so that no barrier stands between their stores and their next loads.
#include "common/errors.hpp"
#include "gpu/kernels/elementwise/elementwise.hpp"
#include "gpu/kernels/flash1_mma/flash1_mma.hpp"
#include "gpu/kernels/flash2_mma/common.cuh"
#include "gpu/launch/launch.cuh"
#include "gpu/primitives/common/merged_row.cuh"
#include "gpu/primitives/common/step_clock.cuh"
#include "gpu/primitives/common/work_item.cuh"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::sm80 {
namespace {

/// A warp's rows of O (fp32), l and m in slow memory: rows lane / 4 + 8 half of row blocks, from `first` on.
struct RunningRows {
  DeviceTensor out, sum, max;
  int batch, head, first, rows, cols, lane;

  __device__ RunningRows(const KernelArguments& args, const CtaWork& work, int first, int lane)
      : out(args[TensorName::out_accum]),
        sum(args[TensorName::row_sum]),
        max(args[TensorName::row_max]),
        batch(work.batch),
        head(work.first_head),
        first(first),
        rows(args.band.seqlen_q),
        cols(args.head_dim),
        lane(lane) {
    // Hidden from the optimiser, which would carry the addresses of O, l and m through all steps.
    asm volatile("" : "+r"(this->batch), "+r"(this->head), "+r"(this->first), "+r"(this->lane));
  }
  __device__ int row(int block, int half) const { return first + 16 * block + 8 * half + (lane >> 2); }
  __device__ bool has(int row) const { return row < rows; }
  __device__ float* value(const DeviceTensor& of, int row) const { return of.row<float>(batch, head, row); }

  /// Line 2: O = 0, l = 0, m = -inf.
  template <int kMBlocks>
  __device__ void initialise() const {
    for (int i = 0; i < 2 * kMBlocks; ++i) {
      const int at = row(i / 2, i % 2);
      if (!has(at)) continue;
      for (int col = 2 * (lane & 3); col < cols; col += 8) {
        *reinterpret_cast<float2*>(value(out, at) + col) = {0.0f, 0.0f};
      }
      if (lane % 4 != 0) continue;
      *value(sum, at) = 0.0f;
      *value(max, at) = kMinusInfinity;
    }
  }

  /// Lines 11 to 13 for one row: l, m and O after the tile. Loads go past L1, so that the bytes are those of
  /// the tiles.
  /// @param product  of the tile's P and V
  template <int kBlocks>
  __device__ __forceinline__ MergedRow merge(int at, const TileRow& tile, Accumulator (&product)[kBlocks],
                                             int half, float scale) const {
    const bool exists = has(at);
    const MergedRow merged(tile, exists ? __ldcg(value(max, at)) : kMinusInfinity,
                           exists ? __ldcg(value(sum, at)) : 0.0f, scale);
    __syncwarp();  // a row's four lanes have read l and m before the first of them overwrites both
    if (exists && lane % 4 == 0) {
      *value(sum, at) = merged.sum;
      *value(max, at) = merged.max;
    }
#pragma unroll
    for (int j = 0; j < kBlocks; ++j) {
      const int col = 8 * j + 2 * (lane & 3);
      if (!exists || col >= cols) continue;
      auto* const place = reinterpret_cast<float2*>(value(out, at) + col);
      const float2 before = __ldcg(place);
      float(&x)[4] = product[j].x;
      x[2 * half] = fmaf(merged.tile_share, x[2 * half], merged.old_share * before.x);
      x[2 * half + 1] = fmaf(merged.tile_share, x[2 * half + 1], merged.old_share * before.y);
      *place = {x[2 * half], x[2 * half + 1]};
    }
    return merged;
  }
};

/// Scores become P relative to the tile's own maxima; `tile` takes these and the sums.
template <int kMBlocks, int kNBlocks>
__device__ __forceinline__ void tile_softmax(WarpAccumulator<kMBlocks, kNBlocks>& s,
                                             TileRow (&tile)[kMBlocks][2], float scale) {
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float max = row_max_of_quad(half_row_max(s.tile[i], half));
      const float sum = exponentiate_half_row(s.tile[i], half, scale, exponent_shift(max, scale));
      tile[i][half] = {max, row_sum_of_quad(sum)};
    }
  }
}

/// One step: S = Q K^T, its softmax, P V, and what that makes of O, l and m. Lines 8 to 13.
template <ElementType kType, int kHeadDim, Features kFeatures, MmaForwardShape kShape>
__device__ __forceinline__ void step(const KernelArguments& args, const CtaWork& work, int first_row,
                                     int first_key, bool full, const TileLogEntry& entry,
                                     SharedTile<kHeadDim> q_tile, SharedTile<kHeadDim> k_tile,
                                     SharedTile<kHeadDim> v_tile, int thread) {
  constexpr int kMBlocks = kShape.warp_rows() / 16;
  const int lane = thread % 32, warp = thread / 32;
  const float scale = exponent_scale(args);
  WarpAccumulator<kMBlocks, kShape.tile.block_n / 16> s;
  s.clear();
  multiply_abt<kType, kHeadDim>(s, LdmatrixByColumns<kHeadDim>(q_tile, lane).at(warp * kMBlocks, 0),
                                LdmatrixByRows<kHeadDim>(k_tile, lane));
  log_scores<false>(entry, args, args.band, s, first_row, first_key, lane);
  sign_and_mask(s, args, args.band, full, first_row, first_key, lane);
  TileRow tile[kMBlocks][2];
  tile_softmax(s, tile, scale);
  if (entry.open()) entry.add(&DeviceTileState::probs, block_sum(s, rounded<kType>));
  WarpAccumulator<kMBlocks, kHeadDim / 16> out;
  out.clear();
  multiply_probs<kType>(out, s, LdmatrixByColumns<kHeadDim>(v_tile, lane), AllBlocks{});
  const RunningRows rows(args, work, first_row, lane);
#pragma unroll
  for (int i = 0; i < kMBlocks; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at = rows.row(i, half);
      const MergedRow merged = rows.merge(at, tile[i][half], out.tile[i], half, scale);
      if (!entry.open() || !rows.has(at) || lane % 4 != 0 || merged.max == kMinusInfinity) continue;
      entry.add(&DeviceTileState::row_max, static_cast<double>(merged.max));
      entry.add(&DeviceTileState::row_sum, static_cast<double>(merged.sum));
    }
  }
  if (entry.open()) {
    entry.add(&DeviceTileState::accum, inside_sum(out, rows.rows - rows.first, rows.cols, lane));
  }
}

/// CTA: a whole query head. Grid: args.grid. Dynamic shared memory: Flash1Mma::Layout.
template <ElementType kType, int kHeadDim, Features kFeatures, int kChoice = 0>
__global__ __launch_bounds__(
    Flash1Mma::choices(kHeadDim).shapes[kChoice].threads(),
    Flash1Mma::choices(kHeadDim)
        .shapes[kChoice]
        .ctas_per_sm) void flash1_mma_forward(const __grid_constant__ KernelArguments args) {
  constexpr MmaForwardShape kShape = Flash1Mma::choices(kHeadDim).shapes[kChoice];
  constexpr TileShape kTile = kShape.tile;
  constexpr int kThreads = kShape.threads(), kMBlocks = kShape.warp_rows() / 16;
  constexpr Flash1Mma::Layout kLayout = Flash1Mma::layout(kShape, kHeadDim);
  using Tile = SharedTile<kHeadDim>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t base = shared_address(shared);
  const Tile k_tile{base + kLayout.k()}, v_tile{base + kLayout.v()};
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const CtaWork work = query_work<int>(args, num_n_blocks(args.band, kTile));
  const auto load = [&](const Tile& tile, auto rows, TensorName name, int head, int length, int first) {
    load_tile<RowAccess::chunks, rows(), kThreads>(tile, head_rows(args, name, work.batch, head, length),
                                                   first, thread);
  };
  constexpr std::integral_constant<int, kTile.block_m> kQRows{};
  constexpr std::integral_constant<int, kTile.block_n> kKvRows{};
  const int warp_row = warp * kShape.warp_rows();
  for (int first = warp_row; first < args.band.seqlen_q; first += kTile.block_m) {
    RunningRows(args, work, first, lane).initialise<kMBlocks>();
  }
  int visited = 0;
  for (int n_block = work.first_block; n_block < work.end_block; ++n_block) {
    // Found again at each step: registers hold S, P and O, and these would have to leave them.
    const auto range = [&] {
      int block = n_block;
      asm volatile("" : "+r"(block));
      return q_tiles(args.band, kTile, block);
    };
    const auto m_block_of = [&](int step) { return scan_tile(args.scan, range(), n_block, step); };
    const int count = range().count();
    const auto q_tile = [&](int step) { return Tile{base + kLayout.q(step % 2)}; };
    const auto load_q = [&](int step) {
      if (step < count) {
        load(q_tile(step), kQRows, TensorName::q, work.first_head, args.band.seqlen_q,
             m_block_of(step) * kTile.block_m);
      }
      commit_copies();
    };
    if (count == 0) continue;
    __syncthreads();  // the last step has read K, V and Q
    const int first_key = n_block * kTile.block_n;
    load(k_tile, kKvRows, TensorName::k, work.kv_head, args.band.seqlen_k, first_key);
    load(v_tile, kKvRows, TensorName::v, work.kv_head, args.band.seqlen_k, first_key);
    load_q(0);
    for (int i = 0; i < count; ++i) {
      note_step(args, visited);
      wait_for_copies<0>();
      __syncthreads();
      load_q(i + 1);
      const int m_block = m_block_of(i);
      int here = static_cast<int>(threadIdx.x);
      asm volatile("" : "+r"(here));
      const TileLogEntry entry(tile_log<kFeatures>(args), visited++, work.batch, work.first_head, m_block,
                               n_block);
      step<kType, kHeadDim, kFeatures, kShape>(
          args, work, m_block * kTile.block_m + here / 32 * kShape.warp_rows(), first_key,
          range().full(m_block), entry, q_tile(i), k_tile, v_tile, here);
    }
  }
}

/// Tiles other than the kernel's own. They write no tile log.
template <ElementType kType, int kHeadDim>
void launch_tuned(int choice, const TileProgram& program, const KernelArguments& arguments,
                  CUstream_st* stream) {
  if (arguments.log.states) {
    throw BadInput("tile", std::to_string(program.tile.block_m) + "x" + std::to_string(program.tile.block_n),
                   "only the kernel's own tile is compiled to be observed");
  }
  if constexpr (kHasTuner) {
    dispatch_choice<Flash1Mma::choices(kHeadDim).count>(choice, [&]<int kChoice>() {
      launch_pass(flash1_mma_forward<kType, kHeadDim, Features::plain, kChoice>, program,
                  Flash1Mma::launch_shape(program), arguments, stream);
    });
  } else {
    throw MachineLacks(std::string(kTunerLack));
  }
}

template <ElementType kType, int kHeadDim>
void launch_as(const TileProgram& program, const KernelArguments& arguments, CUstream_st* stream) {
  const int choice = Flash1Mma::choices(kHeadDim).find(program.tile, {});
  if (choice > 0) return launch_tuned<kType, kHeadDim>(choice, program, arguments, stream);
  launch_pass(arguments.log.states ? flash1_mma_forward<kType, kHeadDim, Features::general>
                                   : flash1_mma_forward<kType, kHeadDim, Features::plain>,
              program, Flash1Mma::launch_shape(program), arguments, stream);
}

}  // namespace
}  // namespace tilescope::sm80

void tilescope::Flash1Mma::launch(const TileProgram& program, const KernelArguments& arguments,
                                  CUstream_st* stream) {
  if (program.name == PassName::convert) return launch_convert(program, arguments, stream);
  const bool narrow = mma_head_dim(program.problem.head_dim) == 64;
  if (program.problem.dtype == ElementType::fp16) {
    return (narrow ? sm80::launch_as<ElementType::fp16, 64>
                   : sm80::launch_as<ElementType::fp16, 128>)(program, arguments, stream);
  }
  (narrow ? sm80::launch_as<ElementType::bf16, 64>
          : sm80::launch_as<ElementType::bf16, 128>)(program, arguments, stream);
}
