// SPDX-License-Identifier: Apache-2.0
// gpu:flash2-mma, backward in one launch: a CTA computes dK and dV of its keys, then dQ of its queries. The
// two passes of the split order, one after the other in the same CTA: as many products and bytes, no
// reductions, and under a causal mask as much work for every CTA, since the keys that most queries see are
// those whose queries see fewest keys. On an H200, causal, 1024 ... 8192 keys, it takes 5 to 20 % longer than
// the two launches at head_dim 64 and 128, where dq alone has two CTAs an SM and here one, and 3 % less to 4
// % more at 256 (reports/data/bench-h200-single-launch.json.gz). Source: the backward kernel of Triton's
// fused-attention tutorial has this order.
#pragma once

#include "gpu/kernels/flash2_mma/dkdv.cuh"
#include "gpu/kernels/flash2_mma/dq.cuh"

namespace tilescope::sm80 {

template <int kHeadDim>
struct JoinedDq {
  static constexpr MmaDqShape shape = mma_single_launch_dq_shape(kHeadDim);
  static_assert(shape.threads() == mma_dkdv_shape(kHeadDim).threads());
};

/// CTA: kv tile work.first_block of one key/value head, then q tile work.first_block of every query head of
/// the group; either may lie beyond its end. Grid: args.grid, with as many blocks as the axis that has more.
template <ElementType kType, int kHeadDim, Features kFeatures>
__global__ __launch_bounds__(mma_dkdv_shape(kHeadDim).threads(), 1) void flash2_mma_single_launch(
    const __grid_constant__ ArgumentsOf<kFeatures> args) {
  using DqChoice = JoinedDq<kHeadDim>;
  const CtaWork work = kv_work<int>(args);
  if (work.first_block * mma_dkdv_shape(kHeadDim).tile.block_n < args.band.seqlen_k) {
    dkdv_cta<kType, kHeadDim, false, kFeatures, DefaultDkdv<kHeadDim, kFeatures>>(args, [&] { return work; });
  }
  if (work.first_block * DqChoice::shape.tile.block_m >= args.band.seqlen_q) return;
#pragma unroll 1
  for (int head = work.first_head; head < work.end_head; ++head) {
    __syncthreads();  // what stood in shared memory has been read
    CtaWork own = work;
    own.batch_head = work.batch * args.heads + head;
    own.first_head = head;
    own.end_head = head + 1;
    dq_cta<kType, kHeadDim, kFeatures, DqChoice>(args, [&] { return own; });
  }
}

/// @param program  dkdv, whose launch takes the dq pass along
template <Features kFeatures>
void launch_flash2_mma_single_launch(const TileProgram& program, LaunchShape shape,
                                     const KernelArguments& arguments, CUstream_st* stream) {
  dispatch_mma(program.problem, [&]<ElementType kType, int kHeadDim>() {
    constexpr TileShape kQueries = mma_single_launch_dq_shape(kHeadDim).tile;
    TileProgram both = program;
    both.grid.num_blocks = max_of(program.grid.num_blocks, num_m_blocks(arguments.band, kQueries));
    ArgumentsOf<kFeatures> with_grid = arguments_of<kFeatures>(arguments, program.problem);
    with_grid.grid = both.grid;
    launch_grid(flash2_mma_single_launch<kType, kHeadDim, kFeatures>, both, shape, stream, with_grid);
  });
}

}  // namespace tilescope::sm80
