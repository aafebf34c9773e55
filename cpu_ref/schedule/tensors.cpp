// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/schedule/tensors.hpp"

namespace tilescope {

TensorExtent tensor_extent(const AttentionProblem& problem, TensorName name, std::int64_t splits) {
  const AttentionProblem& p = problem;
  const auto extent = [&p](std::int64_t heads, std::int64_t rows, std::int64_t cols, ElementType dtype,
                           TileIndexing indexing) {
    return TensorExtent{p.batch, heads, rows, cols, element_bytes(dtype), dtype, indexing};
  };
  // fp8 kernels read fp8 and write bf16, as FlashAttention-3 does.
  const ElementType wide = is_fp8(p.dtype) ? ElementType::bf16 : p.dtype;
  const ElementType fp32 = ElementType::fp32;
  switch (name) {
    case TensorName::out_partial:
    case TensorName::lse_partial: {
      TensorExtent partial = extent(p.heads, p.seqlen_q, name == TensorName::out_partial ? p.value_dim() : 1,
                                    fp32, TileIndexing::m);
      partial.splits = splits;
      return partial;
    }
    case TensorName::q:
    case TensorName::dq:
      return extent(p.heads, p.seqlen_q, p.head_dim, p.dtype, TileIndexing::m);
    case TensorName::dout:
      return extent(p.heads, p.seqlen_q, p.value_dim(), p.dtype, TileIndexing::m);
    case TensorName::out:
      return extent(p.heads, p.seqlen_q, p.value_dim(), wide, TileIndexing::m);
    case TensorName::out_accum:
      return extent(p.heads, p.seqlen_q, p.value_dim(), fp32, TileIndexing::m);
    case TensorName::dq_accum: {
      TensorExtent sums = extent(p.heads, p.seqlen_q, p.head_dim, fp32, TileIndexing::m);
      sums.splits = splits;
      return sums;
    }
    case TensorName::lse:
    case TensorName::row_max:
    case TensorName::row_sum:
    case TensorName::delta:
      return extent(p.heads, p.seqlen_q, 1, fp32, TileIndexing::m);
    case TensorName::k:
      return extent(p.heads_kv, p.seqlen_k, p.head_dim, p.kv_type(), TileIndexing::n);
    case TensorName::v:
      return extent(p.heads_kv, p.seqlen_k, p.value_dim(), p.kv_type(), TileIndexing::n);
    case TensorName::dk:
      return extent(p.heads_kv, p.seqlen_k, p.head_dim, p.dtype, TileIndexing::n);
    case TensorName::dv:
      return extent(p.heads_kv, p.seqlen_k, p.value_dim(), p.dtype, TileIndexing::n);
    case TensorName::dk_accum:
    case TensorName::dv_accum: {
      TensorExtent sums =
          extent(p.heads_kv, p.seqlen_k, name == TensorName::dk_accum ? p.head_dim : p.value_dim(), fp32,
                 TileIndexing::n);
      sums.splits = splits;
      return sums;
    }
    case TensorName::scores:
      return extent(p.heads, p.seqlen_q, p.seqlen_k, wide, TileIndexing::mn);
    case TensorName::probs:
    case TensorName::dprobs:
    case TensorName::dscores:
      return extent(p.heads, p.seqlen_q, p.seqlen_k, p.dtype, TileIndexing::mn);
    case TensorName::alibi_slopes:
    case TensorName::sink:
    case TensorName::dsink: {
      TensorExtent numbers = extent(p.heads, 1, 1, fp32, TileIndexing::head);
      numbers.batch = 1;
      return numbers;
    }
  }
  throw BadInput("unknown tensor");
}

std::vector<TensorName> score_operands(const AttentionProblem& problem) {
  if (problem.score_mods.alibi) return {TensorName::alibi_slopes};
  return {};
}

}  // namespace tilescope
