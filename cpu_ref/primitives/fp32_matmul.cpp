// SPDX-License-Identifier: Apache-2.0
// Compiled once for each instruction set, as tile_math.cpp.
#include "cpu_ref/primitives/fp32_matmul.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu_ref/primitives/fp32_matmul.cpp"
#include <hwy/foreach_target.h>
// Highway asks for this order.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tilescope {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kTileAlign>;
using Vector = hn::Vec<Floats>;

// Rows of the register block. Two vectors of columns and this many rows of accumulators leave registers for
// b and the broadcast of a: 16 + 3 of AVX-512's 32, 12 + 3 of the 16 of narrower machines. Eight chains of
// two hide the latency of a multiply-add (4 cycles, 2 a cycle).
#if HWY_TARGET <= HWY_AVX3
constexpr int kBlockRows = 8;
#else
constexpr int kBlockRows = 6;
#endif

/// c (kRows, kVectors vectors) = or += a * b, with all of c in registers.
template <int kRows, int kVectors, bool kRowsAdjacent>
HWY_INLINE void block_matmul(const float* HWY_RESTRICT a, std::ptrdiff_t stride, const float* HWY_RESTRICT b,
                             std::ptrdiff_t b_stride, float* HWY_RESTRICT c, std::ptrdiff_t c_stride,
                             int depth, bool accumulate) {
  const Floats d;
  const std::ptrdiff_t lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  Vector sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int k = 0; k < depth; ++k) {
    Vector row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector broadcast = hn::Set(d, kRowsAdjacent ? a[r] : a[r * stride]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(broadcast, row[v], sums[r][v]);
    }
    a += kRowsAdjacent ? stride : 1;
    b += b_stride;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], d, c + r * c_stride + v * lanes);
  }
}

template <int kRows, int kVectors, bool kRowsAdjacent>
void ragged_block_matmul(int rows, const float* a, std::ptrdiff_t stride, const float* b,
                         std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride, int depth,
                         bool accumulate) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return ragged_block_matmul<kRows - 1, kVectors, kRowsAdjacent>(rows, a, stride, b, b_stride, c,
                                                                     c_stride, depth, accumulate);
    }
  }
  block_matmul<kRows, kVectors, kRowsAdjacent>(a, stride, b, b_stride, c, c_stride, depth, accumulate);
}

template <int kVectors, bool kRowsAdjacent>
void panel_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int depth, bool accumulate) {
  const std::ptrdiff_t stride = kRowsAdjacent ? a.depth_stride : a.row_stride;
  int row = 0;
  for (; row + kBlockRows <= rows; row += kBlockRows) {
    block_matmul<kBlockRows, kVectors, kRowsAdjacent>(a.data + row * a.row_stride, stride, b, b_stride,
                                                      c + row * c_stride, c_stride, depth, accumulate);
  }
  if (row < rows) {
    ragged_block_matmul<kBlockRows - 1, kVectors, kRowsAdjacent>(rows - row, a.data + row * a.row_stride,
                                                                 stride, b, b_stride, c + row * c_stride,
                                                                 c_stride, depth, accumulate);
  }
}

template <bool kRowsAdjacent>
void matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c, std::ptrdiff_t c_stride,
            int rows, int cols, int depth, bool accumulate) {
  const int lanes = static_cast<int>(hn::Lanes(Floats()));
  int col = 0;
  for (; col + lanes < cols; col += 2 * lanes) {
    panel_matmul<2, kRowsAdjacent>(a, b + col, b_stride, c + col, c_stride, rows, depth, accumulate);
  }
  if (col < cols) {
    panel_matmul<1, kRowsAdjacent>(a, b + col, b_stride, c + col, c_stride, rows, depth, accumulate);
  }
}

void TileMatmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  const bool add = accumulate == Accumulate::yes;
  if (a.row_stride == 1) {
    matmul<true>(a, b, b_stride, c, c_stride, rows, cols, depth, add);
  } else {
    matmul<false>(a, b, b_stride, c, c_stride, rows, cols, depth, add);
  }
}

#if HWY_TARGET == HWY_SCALAR
constexpr int kTransposeSide = 1;
HWY_INLINE void transpose_block(const float* in, std::ptrdiff_t, float factor, float* out, std::ptrdiff_t) {
  *out = factor * *in;
}
#else
constexpr int kTransposeSide = 4;
/// Four rows of four columns to four columns of four rows.
HWY_INLINE void transpose_block(const float* HWY_RESTRICT in, std::ptrdiff_t in_stride, float factor,
                                float* HWY_RESTRICT out, std::ptrdiff_t out_stride) {
  const hn::FixedTag<float, 4> d;
  const auto f = hn::Set(d, factor);
  const auto row0 = hn::Mul(f, hn::LoadU(d, in)), row1 = hn::Mul(f, hn::LoadU(d, in + in_stride));
  const auto row2 = hn::Mul(f, hn::LoadU(d, in + 2 * in_stride));
  const auto row3 = hn::Mul(f, hn::LoadU(d, in + 3 * in_stride));
  const auto low02 = hn::InterleaveLower(d, row0, row2), high02 = hn::InterleaveUpper(d, row0, row2);
  const auto low13 = hn::InterleaveLower(d, row1, row3), high13 = hn::InterleaveUpper(d, row1, row3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, out);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, out + out_stride);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, out + 2 * out_stride);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, out + 3 * out_stride);
}
#endif

void TransposeTile(const float* in, std::ptrdiff_t in_stride, int rows, int cols, float factor, float* out,
                   std::ptrdiff_t out_stride) {
  constexpr int side = kTransposeSide;
  const int whole_rows = rows / side * side, whole_cols = cols / side * side;
  for (int row = 0; row < whole_rows; row += side) {
    for (int col = 0; col < whole_cols; col += side) {
      transpose_block(in + row * in_stride + col, in_stride, factor, out + col * out_stride + row,
                      out_stride);
    }
  }
  for (int col = 0; col < cols; ++col) {
    float* line = out + col * out_stride;
    const int done = col < whole_cols ? whole_rows : 0;
    for (int row = done; row < rows; ++row) line[row] = factor * in[row * in_stride + col];
    for (int row = rows; row < padded(rows); ++row) line[row] = 0.0f;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tilescope
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilescope {

HWY_EXPORT(TileMatmul);
HWY_EXPORT(TransposeTile);

void tile_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                 std::ptrdiff_t c_stride, int rows, int cols, int depth, Accumulate accumulate) {
  HWY_DYNAMIC_DISPATCH(TileMatmul)(a, b, b_stride, c, c_stride, rows, cols, depth, accumulate);
}
void transpose_tile(const float* in, std::ptrdiff_t in_stride, int rows, int cols, float factor, float* out,
                    std::ptrdiff_t out_stride) {
  HWY_DYNAMIC_DISPATCH(TransposeTile)(in, in_stride, rows, cols, factor, out, out_stride);
}

}  // namespace tilescope
#endif  // HWY_ONCE
