// SPDX-License-Identifier: Apache-2.0
// From a pass's arguments to a launch of flash3's fused backward pass.
#pragma once

#include "cpu_ref/schedule/splits.hpp"
#include "gpu/kernels/flash3/backward/arguments.cuh"
#include "gpu/kernels/flash3/forward/launch.cuh"

namespace tilescope::gpu {

/// The arguments of the fused backward pass. dq_accum is converted after it.
template <sm90::WgmmaType kType, Flash3BackwardShape kShape>
Flash3BackwardArgumentsOf<kShape.tables> flash3_backward_arguments(const TileProgram& program,
                                                                   const KernelArguments& args) {
  constexpr auto kElement = kType == sm90::WgmmaType::fp16 ? sm90::MapElement::fp16 : sm90::MapElement::bf16;
  const int splits = args.grid.num_splits;
  const int batch = args.grid.num_heads / (args.heads_kv * splits);
  const auto map = [&](TensorName name, int heads, int rows, int box_rows) {
    return sm90::encode_tensor_map(
        flash3_map(kElement, args[name], batch, heads, rows, args.head_dim, box_rows), args[name].data);
  };
  Flash3BackwardArgumentsOf<kShape.tables> out{};
  out.dq_slots = dq_slots(program);
  out.batches = batch;
  out.tiles_of_part = program.splits.tiles;
  const int q_rows = args.band.seqlen_q, k_rows = args.band.seqlen_k;
  out.q = map(TensorName::q, args.heads, q_rows, kShape.tile.block_m);
  out.dout = map(TensorName::dout, args.heads, q_rows, kShape.tile.block_m);
  out.k = map(TensorName::k, args.heads_kv, k_rows, kShape.tile.block_n);
  out.v = map(TensorName::v, args.heads_kv, k_rows, kShape.tile.block_n);
  out.dk = map(TensorName::dk, args.heads_kv, k_rows, 16);
  out.dv = map(TensorName::dv, args.heads_kv, k_rows, 16);
  sm90::TensorMapParameters sums =
      flash3_map(sm90::MapElement::fp32, args[TensorName::dq_accum], batch * out.dq_slots.count, args.heads,
                 q_rows, args.head_dim, 64);
  sums.box[0] = 32;
  out.dq_accum = sm90::encode_tensor_map(sums, args[TensorName::dq_accum].data);
  if (program.dq_start != DqStart::cleared && program.dq_flags > 0) {
    const DeviceTensor& dq = args[TensorName::dq];
    out.dq_flags = static_cast<int*>(dq.data);
    const auto stride = [](std::int64_t elements) { return static_cast<unsigned>(elements / 8); };
    out.flag_batch_stride = stride(dq.batch_stride);
    out.flag_head_stride = stride(dq.head_stride);
    out.flag_tile_stride = stride(kShape.tile.block_m * dq.row_stride);
  }
  if (splits > 1) {
    out.dk_sums = args[TensorName::dk_accum];
    out.dv_sums = args[TensorName::dv_accum];
  }
  const DeviceTensor& lse = args[TensorName::lse];
  out.lse = static_cast<const float*>(lse.data);
  out.delta = static_cast<const float*>(args[TensorName::delta].data);
  out.lse_batch_stride = lse.batch_stride;
  out.lse_head_stride = lse.head_stride;
  out.grid = args.grid;
  out.scan = args.scan;
  out.band = args.band;
  out.head_dim = args.head_dim;
  out.heads = {args.heads, args.heads_kv, head_splits_of(splits, args.group_size())};
  out.heads_of_cta = args.group_size() / out.heads.splits;
  out.softmax_scale = args.softmax_scale;
  out.exponent_scale = args.score_sign * args.softmax_scale_log2;
  out.log = args.log;
  out.clock = args.clock;
  if constexpr (kShape.tables) out.visits = args.visits;
  return out;
}

/// Enqueues the pass with so many CTAs. Compiled once for each type and Flash3BackwardChoice, and to be
/// observed, for sm_90a.
template <sm90::WgmmaType kType, typename Choice, bool kObserved = false>
void launch_flash3_dkdvdq(const Flash3BackwardArgumentsOf<Choice::shape.tables>& arguments, int ctas,
                          cudaStream_t stream);

}  // namespace tilescope::gpu
