// SPDX-License-Identifier: Apache-2.0
// What flash3's fused backward pass is launched with.
#pragma once

#include <cuda.h>

#include <type_traits>

#include "cpu_ref/schedule/sum_slots.hpp"
#include "cpu_ref/schedule/tile_schedule.hpp"
#include "gpu/kernels/flash3/backward/shapes.hpp"
#include "gpu/launch/kernel_arguments.hpp"

namespace tilescope::gpu {

struct Flash3BackwardArguments {
  CUtensorMap q, k, v, dout;      // head_panels(): boxes of block_m, block_n, block_n and block_m rows
  CUtensorMap dk, dv;             // head_panels(): boxes of 16 rows
  CUtensorMap dq_accum;           // (B, H, Nq, D) fp32: boxes of 32 columns and 64 rows
  DeviceTensor dk_sums, dv_sums;  // fp32, to which CTAs that share a kv tile add; null: each stores its own
  /// Of an ordered pass, in which these CTAs store to slots of their own, one for all batch entries after the
  /// other, and dQ has slots as well.
  DqSlots dq_slots;
  int batches = 1;
  int tiles_of_part = 0;  // see SplitKeys::tiles
  /// A q tile's flags (DqStart), one for each warpgroup, 0 at first: how many kv tiles have added to a slot
  /// of dQ, in an ordered pass; whether one has stored there; claimed, and then stored. Null: dQ is cleared,
  /// all add; or, in an ordered pass, each has a slot of its own.
  int* dq_flags = nullptr;
  unsigned flag_batch_stride = 0, flag_head_stride = 0, flag_tile_stride = 0;  // [16 bytes]
  const float* lse = nullptr;    // (B, H, Nq), natural logarithm; strides in elements
  const float* delta = nullptr;  // likewise
  std::int64_t lse_batch_stride = 0, lse_head_stride = 0;
  Grid grid;  // kv tiles of batch x key/value heads, and splits of their queries
  Scan scan = Scan::ascending;
  VisibleBand band;
  int head_dim = 1;
  HeadCounts heads;
  int heads_of_cta = 1;         // query heads that it streams: those of a key/value head, or a share
  float softmax_scale = 1.0f;   // signed, of dK
  float exponent_scale = 1.0f;  // signed, times log2(e), of at least the smallest normal magnitude
  DeviceTileLog log;            // of observed instances
  StepClock clock;
};
struct Flash3BackwardTableArguments : Flash3BackwardArguments {
  DeviceVisits visits;
};
/// What an instance is launched with. @tparam kTables  of its shape
template <bool kTables>
using Flash3BackwardArgumentsOf =
    std::conditional_t<kTables, Flash3BackwardTableArguments, Flash3BackwardArguments>;

}  // namespace tilescope::gpu
