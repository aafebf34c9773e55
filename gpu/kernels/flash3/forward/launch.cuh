// SPDX-License-Identifier: Apache-2.0
// From a pass's arguments to a launch of flash3's forward pass.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/errors.hpp"
#include "gpu/kernels/flash3/forward/arguments.cuh"
#include "gpu/kernels/flash3/forward/tanh_terms.hpp"
#include "gpu/primitives/sm90/encode_tensor_map.hpp"
#include "gpu/primitives/sm90/wgmma.cuh"

namespace tilescope::gpu {

/// The map of a tensor of attention in boxes of `box_rows` rows.
inline sm90::TensorMapParameters flash3_map(sm90::MapElement element, const DeviceTensor& tensor, int batch,
                                            int heads, int rows, int head_dim, int box_rows,
                                            sm90::Swizzle width = sm90::Swizzle::bytes128) {
  return sm90::head_panels(element, batch, heads, rows, head_dim, tensor.batch_stride, tensor.head_stride,
                           tensor.row_stride, box_rows, width);
}

/// What every type's forward pass is launched with, but the maps.
/// @param args  its work counter is 0, and used by one launch at a time
/// @param out_cols  of O
inline Flash3ForwardArguments flash3_common_arguments(const KernelArguments& args, int out_cols,
                                                      const SplitKeys& splits = {}) {
  Flash3ForwardArguments out{};
  const DeviceTensor& rows = args[TensorName::out];
  out.out_rows = {static_cast<std::uint16_t*>(rows.data), rows.batch_stride, rows.head_stride,
                  rows.row_stride};
  out.out_cols = out_cols;
  const bool parts = splits.count > 1;
  const DeviceTensor& lse = args[parts ? TensorName::lse_partial : TensorName::lse];
  if (parts) out.out_parts = args[TensorName::out_partial];
  out.splits = splits;
  out.batches = args.grid.num_heads / (args.heads * splits.count);
  out.lse = static_cast<float*>(lse.data);
  out.lse_batch_stride = lse.batch_stride;
  out.lse_head_stride = lse.head_stride;
  out.grid = args.grid;
  out.scan = args.scan;
  out.band = args.band;
  out.heads = args.heads;
  out.group_size = args.group_size();
  out.softmax_scale = std::fabs(args.softmax_scale);
  out.exponent_scale = args.softmax_scale_log2;
  out.score_sign = args.score_sign;
  out.counter = args.counter;
  out.log = args.log;
  out.clock = args.clock;
  out.visits = args.visits;
  return out;
}

/// Packed heads are a view of the same memory: the rows of a group are those of one head.
inline KernelArguments flash3_packed_heads(KernelArguments arguments) {
  const int group = arguments.group_size();
  for (const TensorName name :
       {TensorName::q, TensorName::out, TensorName::lse, TensorName::out_partial, TensorName::lse_partial}) {
    DeviceTensor& tensor = arguments.tensors[static_cast<std::size_t>(name)];
    if (tensor.data && tensor.head_stride != arguments.band.seqlen_q * tensor.row_stride) {
      throw BadInput("pack-gqa", "on",
                     "must be off where tensors are laid out (batch, rows, heads, head_dim)");
    }
    tensor.head_stride *= group;
  }
  arguments.band.seqlen_q *= group;
  arguments.heads = arguments.heads_kv;
  return arguments;
}

/// Interleaved heads are one of a key/value head, by which the kernel counts; tensors stay as they are.
inline KernelArguments flash3_interleaved_heads(KernelArguments arguments) {
  arguments.heads = arguments.heads_kv;
  return arguments;
}

/// Slopes and sinks lie by query heads.
inline Flash3ScoreMods flash3_score_mods(const KernelArguments& args) {
  const DeviceScoreMods& given = args.score_mods;
  Flash3ScoreMods mods{.slopes = given.alibi_slopes,
                       .sinks = given.sinks,
                       .per_scale = given.per_scale,
                       .sign = args.score_sign};
  if (given.softcap == 0.0f) return mods;
  const double cap = given.softcap, sign = args.score_sign;
  mods.softcap = given.softcap;
  mods.exponent = static_cast<float>(2.0 * kLog2E * sign / cap);
  mods.minus_twice = -2.0f * given.softcap;
  mods.sign = 1.0f;
  // Terms whose powers of the cap are no normal numbers are nothing to scores far below a large cap; of a
  // small one there are none.
  constexpr double kLarge = 1 << 20, kFarBelow = 1.0 / 64, kLargestSquared = 1e18;
  if (cap * kLarge < 1.0) return mods;
  const double most = (cap > kLarge ? kFarBelow : kFlash3TanhTermsMost) * cap;
  mods.most_by_terms = static_cast<float>(std::min(most, kLargestSquared));
  for (int i = 0; i < 4; ++i) {
    mods.tanh_terms[i] = static_cast<float>(sign * kFlash3TanhTerms[i] * std::pow(cap, -2 * i));
  }
  return mods;
}

/// What finds keys and values in pages. Where keys end inside a page, nothing is read behind them: it may be
/// anybody's.
template <Flash3ForwardShape kShape>
void add_flash3_pages(Flash3PagedArguments& out, sm90::MapElement element, const KernelArguments& args,
                      const AttentionProblem& problem) {
  out.pages = args.kv_pages;
  const auto page = static_cast<int>(problem.page_size);
  const int last = args.band.seqlen_k % page == 0 ? page : args.band.seqlen_k % page;
  constexpr int kAnyPage = std::numeric_limits<int>::max();  // outside are only negative ones
  const auto map = [&](TensorName name, int rows) {
    return sm90::encode_tensor_map(flash3_map(element, args[name], kAnyPage, args.heads_kv, rows,
                                              args.head_dim, std::min(page, kShape.keys_a_loader())),
                                   args[name].data);
  };
  out.k = map(TensorName::k, page), out.k_end = map(TensorName::k, last);
  out.v = map(TensorName::v, page), out.v_end = map(TensorName::v, last);
}

template <sm90::WgmmaType kType, Flash3ForwardShape kShape>
Flash3ArgumentsOf<kShape.mods, kShape.paged> flash3_forward_arguments(const TileProgram& program,
                                                                      const KernelArguments& of_heads) {
  const int heads_together = program.interleaved_heads();
  const KernelArguments args = heads_together > 1 ? flash3_interleaved_heads(of_heads)
                               : program.pack_gqa ? flash3_packed_heads(of_heads)
                                                  : of_heads;
  constexpr auto kElement = kType == sm90::WgmmaType::fp16 ? sm90::MapElement::fp16 : sm90::MapElement::bf16;
  const int out_cols = static_cast<int>(program.problem.value_dim());
  Flash3ArgumentsOf<kShape.mods, kShape.paged> out{};
  static_cast<Flash3ForwardArguments&>(out) = flash3_common_arguments(args, out_cols, program.splits);
  if constexpr (kShape.mods) out.mods = flash3_score_mods(args);
  out.head_bits = std::countr_zero(static_cast<unsigned>(heads_together));
  const auto map = [&](TensorName name, int heads, int rows, int cols, int box_rows, int box_heads = 1) {
    sm90::TensorMapParameters map =
        flash3_map(kElement, args[name], out.batches, heads, rows, cols, box_rows);
    map.box[2] = static_cast<std::uint32_t>(box_heads);
    return sm90::encode_tensor_map(map, args[name].data);
  };
  const int q_heads = args.heads * heads_together, q_rows = 64 / heads_together;
  const int out_rows = std::min(16, q_rows);
  out.q = map(TensorName::q, q_heads, args.band.seqlen_q, args.head_dim, q_rows, heads_together);
  if constexpr (kShape.paged) {
    add_flash3_pages<kShape>(out, kElement, args, program.problem);
  } else {
    out.k = map(TensorName::k, args.heads_kv, args.band.seqlen_k, args.head_dim, kShape.tile.block_n);
    out.v = map(TensorName::v, args.heads_kv, args.band.seqlen_k, out_cols, kShape.tile.block_n);
  }
  out.out = map(TensorName::out, q_heads, args.band.seqlen_q, out_cols, out_rows, 16 / out_rows);
  return out;
}

/// Enqueues the pass on `sms` multiprocessors. Compiled once for each type and Flash3ForwardChoice, and to be
/// observed, for sm_90a.
template <sm90::WgmmaType kType, typename Choice, bool kObserved = false>
void launch_flash3_forward(const Flash3ArgumentsOf<Choice::shape.mods, Choice::shape.paged>& arguments,
                           int sms, cudaStream_t stream);

}  // namespace tilescope::gpu
