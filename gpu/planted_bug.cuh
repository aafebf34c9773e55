// SPDX-License-Identifier: Apache-2.0
// Bugs that `verify` must see in the GPU kernels, as cpu_ref/planted_bug.hpp has them for the CPU. They exist
// only in the build that defines TILESCOPE_GPU_PLANTED_BUGS (the target test_gpu_planted_bugs); elsewhere
// planted() is the constant false and costs nothing.
#pragma once

// name, what goes wrong
#define TILESCOPE_GPU_PLANTED_BUG_LIST(X)                                                                \
  /* standard */                                                                                         \
  X(standard_barrier_missing, "S is stored before the last warp, which is late, has put its part of it") \
  X(standard_mask_one_more, "a row of the softmax sees one key too many")                                \
  X(standard_sum_without_a_warp, "a row's sum and maximum miss the second warp's part")                  \
  X(standard_dropout_not_rescaled, "kept entries of P are not divided by 1 - dropout")                   \
  X(standard_head_of_product, "the left operand of a product by keys is the group's first head's")       \
  /* CUDA-core tiles: flash1, flash2-simt */                                                             \
  X(simt_swizzle_wrong, "P is put where its chunk would lie without the swizzle")                        \
  X(simt_row_sum_of_half, "a row's sum and maximum miss half of its lanes")                              \
  X(simt_mask_one_more, "a query sees one key too many on the right")                                    \
  X(simt_rounding_lost, "P and dS enter their products in fp32, not in the element type")                \
  X(simt_dropout_of_first_head, "every head takes the dropout mask of the first")                        \
  X(simt_lse_stale, "every row takes the LSE of the tile's first")                                       \
  X(simt_delta_of_next_row, "a row takes the delta of its neighbour")                                    \
  X(simt_tail_unguarded, "rows beyond the matrix are stored")                                            \
  X(simt_rescale_lost, "the accumulator is not rescaled when the maximum grows")                         \
  X(simt_barrier_missing, "dK is computed before the last warp, which is late, has put its dS")          \
  X(simt_reduction_overwrites, "a tile's part of dQ, dK or dV is stored, not added")                     \
  X(simt_kv_head_interleaved, "query head h reads key/value head h % heads_kv")                          \
  /* flash1 */                                                                                           \
  X(flash1_tile_weight_missing, "a tile's P stay relative to its own maximum")                           \
  X(flash1_sum_not_initialised, "row_sum is not written before its first read")                          \
  X(flash1_dq_overwrites, "dQ of a tile replaces that of the tiles before")                              \
  X(flash1_delta_of_other_group, "the second group of warps writes the first one's delta")               \
  /* elementwise passes */                                                                               \
  X(delta_of_next_row, "delta of a row comes from the next row's O")                                     \
  X(dq_accum_not_cleared, "dQ is added to memory that nobody cleared")                                   \
  X(convert_unscaled, "dQ lacks the softmax scale")                                                      \
  /* tensor-core tiles: flash2-mma */                                                                    \
  X(mma_swizzle_wrong, "stored accumulators are swizzled by half of the row's bits")                     \
  X(mma_stage_not_switched, "a stage is filled while the products read it")                              \
  X(mma_mask_one_more, "a query sees one key too many on the right")                                     \
  X(mma_mask_transposed_one_less, "in the dkdv pass, a key is not seen by its first query")              \
  X(mma_ragged_tile_called_full, "the last kv tile is not masked beyond the last key")                   \
  X(mma_rescale_lost, "the accumulator is not rescaled when the maximum grows")                          \
  X(mma_kv_head_interleaved, "query head h reads key/value head h % heads_kv")                           \
  X(mma_lse_stale, "the dkdv pass uses the LSE of its first q tile")                                     \
  X(mma_delta_of_next_row, "a row takes the delta of its neighbour")                                     \
  X(mma_dropout_counter, "the random words of two neighbouring queries change places in dkdv")           \
  X(mma_barrier_missing, "P and dS of the last warp, which is late, are read before they are there")     \
  X(mma_tail_unguarded, "rows beyond the matrix are stored")                                             \
  X(mma_columns_gathered_wrong, "dQ reductions swap two column pairs")                                   \
  X(mma_dk_not_scaled, "dK lacks the softmax scale")                                                     \
  X(mma_wait_wrong_stage, "the stage before is waited for; copies of this one are only now begun")       \
  X(mma_stage_barrier_missing, "a stage is filled before the last warp, which is late, has read it")

namespace tilescope {

enum class GpuBug : int {
  none,
#define TILESCOPE_ENUMERATOR(name, what) name,
  TILESCOPE_GPU_PLANTED_BUG_LIST(TILESCOPE_ENUMERATOR)
#undef TILESCOPE_ENUMERATOR
};

#ifdef __CUDACC__
#ifdef TILESCOPE_GPU_PLANTED_BUGS
extern __constant__ int active_gpu_bug;
/// Whether the build is asked to misbehave in this way.
__device__ __forceinline__ bool planted(GpuBug bug) { return active_gpu_bug == static_cast<int>(bug); }
/// Holds the CTA's last warp up, so that a missing barrier shows.
__device__ __forceinline__ void be_late(GpuBug bug) {
  if (planted(bug) && threadIdx.x + 32 >= blockDim.x) __nanosleep(100000);
}
#else
__device__ constexpr bool planted(GpuBug) { return false; }
__device__ constexpr void be_late(GpuBug) {}
#endif
#endif

}  // namespace tilescope
