// SPDX-License-Identifier: Apache-2.0
// The tensors of an attention problem: what they are called and how large they are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"

namespace tilescope {

/// The tensors that attention kernels exchange through slow memory. Shapes in tensor_extent().
enum class TensorName : std::uint8_t {
  q,
  k,
  v,
  out,
  lse,  // forward; lse is the natural-log row log-sum-exp of the scaled scores, fp32
  row_max,
  row_sum,  // FlashAttention-1's m and l, fp32; row_max in units of the unscaled score
  dout,
  delta,  // delta = rowsum(dout * out), fp32
  dq,
  dk,
  dv,         // gradients
  out_accum,  // flash1's fp32 output buffer, when the element type is narrower
  dq_accum,
  dk_accum,
  dv_accum,  // fp32 sums; dq_accum and dk_accum lack the softmax scale
  scores,
  probs,
  dprobs,
  dscores,  // standard attention's N x N matrices S, P, dP, dS, element type
  out_partial,
  lse_partial,  // out and lse of each split of the keys, fp32
  // Numbers of query heads, fp32
  alibi_slopes,
  sink,
  dsink,
};
inline constexpr int kNumTensors = static_cast<int>(TensorName::dsink) + 1;
/// Those of the rows of queries and keys come first, behind them the numbers of heads.
inline constexpr int kNumRowTensors = static_cast<int>(TensorName::lse_partial) + 1;
std::string_view to_string(TensorName name);

/// Which tiles a tensor is cut into: by q tile, by kv tile, by both (the N x N matrices), or by heads alone:
/// a tile then holds a number of each query head that a CTA has, of all batch entries.
enum class TileIndexing : std::uint8_t { m, n, mn, head };

/// Shape (batch, heads, rows, cols) and element size of a tensor of `problem`; one of partial results has the
/// shape (splits, batch, heads, rows, cols).
struct TensorExtent {
  std::int64_t batch, heads, rows, cols;
  int element_bytes;
  ElementType dtype;  // fp32 for statistics and accumulators
  TileIndexing indexing;
  std::int64_t splits = 1;

  bool cut_by_m() const { return indexing == TileIndexing::m || indexing == TileIndexing::mn; }
  bool cut_by_n() const { return indexing == TileIndexing::n || indexing == TileIndexing::mn; }
  std::int64_t elements() const { return splits * batch * heads * rows * cols; }
  std::int64_t bytes() const { return elements() * element_bytes; }
};
/// @param splits  of the keys; of those tensors alone that are_partial()
TensorExtent tensor_extent(const AttentionProblem& problem, TensorName name, std::int64_t splits = 1);

/// The numbers of heads that a pass over scores loads for the problem's modifiers.
std::vector<TensorName> score_operands(const AttentionProblem& problem);

/// Whether a tensor holds a result of each split of the keys.
constexpr bool are_partial(TensorName name) {
  return name == TensorName::out_partial || name == TensorName::lse_partial;
}

/// Whether a tensor is read up to the padding of a batch entry only; gradients of padding are written, as 0.
constexpr bool ends_at_padding(TensorName name) { return name == TensorName::k || name == TensorName::v; }

}  // namespace tilescope
