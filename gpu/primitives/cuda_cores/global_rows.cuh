// SPDX-License-Identifier: Apache-2.0
// Rows of tensors in slow memory as the CUDA-core kernels touch them: four neighbouring columns at once, or
// one number of neighbouring rows.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gpu/launch/kernel_arguments.hpp"
#include "gpu/primitives/common/element.cuh"
#include "gpu/primitives/common/reduce_add.cuh"

namespace tilescope::cuda_cores {

/// Rows of one head of a tensor, from `first_row` on: `rows` of them exist, each of `cols` elements.
template <typename Element>
struct GlobalRows {
  Element* data;
  std::int64_t row_stride;
  int rows;
  int cols;

  __device__ GlobalRows(const DeviceTensor& tensor, int batch, int head, int first_row, int seqlen, int cols)
      : data(tensor.head<Element>(batch, head) + first_row * tensor.row_stride),
        row_stride(tensor.row_stride),
        rows(seqlen - first_row),
        cols(cols) {}
  __device__ Element* at(int row, int col) const { return data + row * row_stride + col; }
  /// Whether chunks of four elements are whole and aligned to their size.
  __device__ bool quads() const { return cols % 4 == 0 && row_stride % 4 == 0; }
};

/// Rows of a tensor of queries from `first_query` on, head_dim wide, and of LSE, delta, m or l.
template <typename Element>
__device__ inline GlobalRows<Element> query_rows(const KernelArguments& args, TensorName name, int batch,
                                                 int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, args.head_dim};
}
template <typename Element>
__device__ inline GlobalRows<Element> row_values(const KernelArguments& args, TensorName name, int batch,
                                                 int head, int first_query) {
  return {args[name], batch, head, first_query, args.band.seqlen_q, 1};
}
/// Rows of a tensor of keys from `first_key` on.
template <typename Element>
__device__ inline GlobalRows<Element> key_rows(const KernelArguments& args, TensorName name, int batch,
                                               int kv_head, int first_key) {
  return {args[name], batch, kv_head, first_key, args.band.seqlen_k, args.head_dim};
}
/// Those of K and V up to the padding of their batch entry.
template <typename Element>
__device__ inline GlobalRows<Element> key_rows(const KernelArguments& args, const VisibleBand& band,
                                               TensorName name, int batch, int kv_head, int first_key) {
  return {args[name], batch, kv_head, first_key, band.seqlen_k, args.head_dim};
}

__device__ inline float component(const float4& quad, int x) {
  return x == 0 ? quad.x : x == 1 ? quad.y : x == 2 ? quad.z : quad.w;
}

/// Four neighbouring elements of a type, aligned to be moved at once.
template <typename Element>
struct alignas(4 * sizeof(Element)) ElementQuad {
  Element x[4];
};

/// The same as it comes from memory. Loads of these can all be on their way at once; one that is taken apart
/// where it is loaded makes the next one wait for it.
template <typename Element>
using RawQuad = std::conditional_t<sizeof(Element) == 4, float4, uint2>;

template <typename Element>
__device__ inline float4 widen_quad(RawQuad<Element> raw) {
  if constexpr (sizeof(Element) == 4) {
    return raw;
  } else {
    const auto quad = *reinterpret_cast<const ElementQuad<std::remove_const_t<Element>>*>(&raw);
    return {widen(quad.x[0]), widen(quad.x[1]), widen(quad.x[2]), widen(quad.x[3])};
  }
}

/// Rounds to the element type.
template <typename Element>
__device__ inline RawQuad<Element> narrow_quad(float4 value) {
  if constexpr (sizeof(Element) == 4) {
    return value;
  } else {
    const ElementQuad<Element> quad = {narrow<Element>(value.x), narrow<Element>(value.y),
                                       narrow<Element>(value.z), narrow<Element>(value.w)};
    return *reinterpret_cast<const RawQuad<Element>*>(&quad);
  }
}

/// Four neighbouring columns of a row; zeros beyond the matrix. Only where source.quads(). Past L1, which has
/// nothing to add to tiles in shared memory: a CTA reads each of them once.
template <typename Element>
__device__ inline RawQuad<Element> load_raw(const GlobalRows<Element>& source, int row, int col) {
  if (row >= source.rows || col >= source.cols) return {};
  return __ldcg(reinterpret_cast<const RawQuad<Element>*>(source.at(row, col)));
}

/// Four neighbouring columns of a row, widened; zeros beyond the matrix.
template <typename Element>
__device__ inline float4 load_quad(const GlobalRows<Element>& source, int row, int col) {
  if (row >= source.rows || col >= source.cols) return {0.0f, 0.0f, 0.0f, 0.0f};
  if (source.quads()) return widen_quad<Element>(load_raw(source, row, col));
  float each[4] = {};
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (col + x < source.cols) each[x] = widen(*source.at(row, col + x));
  }
  return {each[0], each[1], each[2], each[3]};
}

/// Four neighbouring columns of a row to slow memory, rounded, clipped to the matrix. By an intrinsic: the
/// compiler takes an assignment apart into four stores, and L1 does not put all of their sectors together
/// again.
template <typename Element>
__device__ inline void store_quad(const GlobalRows<Element>& target, int row, int col, float4 value) {
  if (row >= target.rows || col >= target.cols) return;
  if (target.quads()) {
    __stcg(reinterpret_cast<RawQuad<Element>*>(target.at(row, col)), narrow_quad<Element>(value));
    return;
  }
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (col + x < target.cols) *target.at(row, col + x) = narrow<Element>(component(value, x));
  }
}

/// Adds four neighbouring columns to an fp32 accumulator in slow memory.
__device__ inline void reduce_quad(const GlobalRows<float>& target, int row, int col, float4 value) {
  if (row >= target.rows || col >= target.cols) return;
  if (target.quads()) return reduce_add(target.at(row, col), value);
  const float each[4] = {value.x, value.y, value.z, value.w};
  for (int x = 0; x < 4 && col + x < target.cols; ++x) atomicAdd(target.at(row, col + x), each[x]);
}

/// Zeroes the rows of one head.
template <typename Element>
__device__ inline void zero_rows(const GlobalRows<Element>& rows, int threads) {
  const int quads = (rows.cols + 3) / 4;
  for (int i = static_cast<int>(threadIdx.x); i < rows.rows * quads; i += threads) {
    store_quad(rows, i / quads, 4 * (i % quads), {0.0f, 0.0f, 0.0f, 0.0f});
  }
}

/// LSE, delta, m or l of `Rows` neighbouring rows, 2 or 4, of which the first is a multiple of that. Eight
/// lanes that ask for the same rows, and four that ask for others, touch whole sectors.
template <int Rows>
struct RowRun {
  using Vector = std::conditional_t<Rows == 4, float4, float2>;
  static_assert(Rows == 4 || Rows == 2);
  float x[Rows];

  /// `beyond` where the matrix ends.
  __device__ static RowRun load(const GlobalRows<float>& source, int row, float beyond) {
    RowRun run;
    if (at_once(source, row)) {
      *reinterpret_cast<Vector*>(run.x) = __ldcg(reinterpret_cast<const Vector*>(source.at(row, 0)));
    } else {
#pragma unroll
      for (int i = 0; i < Rows; ++i) run.x[i] = row + i < source.rows ? *source.at(row + i, 0) : beyond;
    }
    return run;
  }
  __device__ void store(const GlobalRows<float>& target, int row) const {
    if (at_once(target, row)) {
      __stcg(reinterpret_cast<Vector*>(target.at(row, 0)), *reinterpret_cast<const Vector*>(x));
    } else {
#pragma unroll
      for (int i = 0; i < Rows; ++i) {
        if (row + i < target.rows) *target.at(row + i, 0) = x[i];
      }
    }
  }

 private:
  __device__ static bool at_once(const GlobalRows<float>& rows, int row) {
    return rows.row_stride == 1 && row + Rows <= rows.rows &&
           reinterpret_cast<std::uintptr_t>(rows.at(row, 0)) % sizeof(Vector) == 0;
  }
};

}  // namespace tilescope::cuda_cores
