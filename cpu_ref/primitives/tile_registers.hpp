// SPDX-License-Identifier: Apache-2.0
// Products of bf16 words (bf16_matmul.hpp) on registers of 16 rows and 16 words, as AMX has them. The
// registers are a template parameter, so that tests put a model of the instructions in their place. Eight of
// them: four take sums, two each the operands.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cpu_ref/primitives/tile.hpp"

#ifdef __x86_64__
#include <immintrin.h>

namespace tilescope {

constexpr int kRegisterRows = 16;
constexpr int kRegisterWords = 16;  // of a row: of the depth, or columns

/// Products that change neither their operands nor what lies behind these. Rows that are read word by word
/// become rows of whole registers first, and so does what does not fill its registers.
template <typename Registers>
class RegisterMatmul {
 public:
  /// As bf16_tile_matmul(). Of 32 numbers of the depth, a sum takes in the sum of those products.
  void operator()(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate) {
    const TileView left = left_registers(a, rows, words);
    const TileView right = right_registers({b, b_stride}, cols, words);
    const bool add = accumulate == Accumulate::yes;
    for (int col = 0; col < cols; col += 2 * kRegisterWords) {
      const TileView panel = {right.data + col, right.stride};
      col + kRegisterWords < cols ? multiply_panel<2>(left, panel, c + col, c_stride, rows, words, add)
                                  : multiply_panel<1>(left, panel, c + col, c_stride, rows, words, add);
    }
  }

 private:
  static constexpr int up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }

  static void grow(Tile& tile, int rows, int cols) {
    const auto needed = static_cast<std::size_t>(rows * tile.stride());
    if (tile.stride() < cols || tile.size() < needed) tile = Tile(rows, cols);
  }

  TileView left_registers(const LeftOperand& a, int rows, int words) {
    const bool by_rows = a.depth_stride == 1;
    if (by_rows && rows % kRegisterRows == 0 && words % kRegisterWords == 0) return {a.data, a.row_stride};
    grow(left_, up(rows, kRegisterRows), up(words, kRegisterWords));
    if (by_rows) {
      for (int row = 0; row < rows; ++row) {
        std::copy_n(a.data + row * a.row_stride, words, left_.row(row));
        std::fill(left_.row(row) + words, left_.row(row) + up(words, kRegisterWords), 0.0f);
      }
    } else {
      for (int row = 0; row < rows; row += kRegisterRows) {
        for (int word = 0; word < words; word += kRegisterWords) {
          const TileView block = {a.data + row + word * a.depth_stride, a.depth_stride};
          rows - row < kRegisterRows
              ? transpose_part(block, words - word, rows - row, left_.row(row) + word, left_.stride())
              : transpose_block(block, words - word, left_.row(row) + word, left_.stride());
        }
      }
    }
    return left_.view();
  }

  TileView right_registers(const TileView& b, int cols, int words) {
    if (words % kRegisterWords == 0) return b;
    const int depth = up(words, kRegisterWords);
    grow(right_, depth, cols);
    for (int word = 0; word < words; ++word) std::copy_n(b.row(word), padded(cols), right_.row(word));
    for (int word = words; word < depth; ++word) std::fill_n(right_.row(word), padded(cols), 0.0f);
    return right_.view();
  }

  /// to (rows, 16) = transpose of `from` (words, rows), with zeros beyond the depth.
  static void transpose_part(const TileView& from, int words, int rows, float* to, std::ptrdiff_t to_stride) {
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < kRegisterWords; ++k) to[row * to_stride + k] = k < words ? from.row(k)[row] : 0.0f;
    }
  }

  /// The same of 16 rows.
  __attribute__((target("avx512f,avx512dq"))) static void transpose_block(const TileView& from, int words,
                                                                          float* to,
                                                                          std::ptrdiff_t to_stride) {
    alignas(64) static constexpr float kZeros[kRegisterRows] = {};
    constexpr int kAll = 0xFFFF;  // lanes; g++ 12 warns of what the unmasked forms leave undefined
    const auto word = [&](int k) { return k < words ? from.row(k) : kZeros; };
    for (int quarter = 0; quarter < 4; ++quarter) {  // of the columns
      __m512 lanes[4];                               // lane l of i: word 4 l + i
      for (int i = 0; i < 4; ++i) {
        lanes[i] = _mm512_castps128_ps512(_mm_loadu_ps(word(i) + 4 * quarter));
        lanes[i] = _mm512_insertf32x4(lanes[i], _mm_loadu_ps(word(4 + i) + 4 * quarter), 1);
        lanes[i] = _mm512_insertf32x4(lanes[i], _mm_loadu_ps(word(8 + i) + 4 * quarter), 2);
        lanes[i] = _mm512_insertf32x4(lanes[i], _mm_loadu_ps(word(12 + i) + 4 * quarter), 3);
      }
      const __m512d low01 = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(kAll, lanes[0], lanes[1]));
      const __m512d low23 = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(kAll, lanes[2], lanes[3]));
      const __m512d high01 = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(kAll, lanes[0], lanes[1]));
      const __m512d high23 = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(kAll, lanes[2], lanes[3]));
      float* const row = to + 4 * quarter * to_stride;
      _mm512_storeu_ps(row, _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, low01, low23)));
      _mm512_storeu_ps(row + to_stride, _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, low01, low23)));
      _mm512_storeu_ps(row + 2 * to_stride, _mm512_castpd_ps(_mm512_maskz_unpacklo_pd(0xFF, high01, high23)));
      _mm512_storeu_ps(row + 3 * to_stride, _mm512_castpd_ps(_mm512_maskz_unpackhi_pd(0xFF, high01, high23)));
    }
  }

  /// All rows of as many columns as kCols registers have.
  template <int kCols>
  static void multiply_panel(const TileView& a, const TileView& b, float* c, std::ptrdiff_t c_stride,
                             int rows, int words, bool add) {
    int row = 0;
    for (; row + 2 * kRegisterRows <= rows; row += 2 * kRegisterRows) {
      multiply_block<2, kCols>({a.row(row), a.stride}, b, c + row * c_stride, c_stride, words, add);
    }
    for (; row < rows; row += kRegisterRows) {
      const TileView block = {a.row(row), a.stride};
      const int left = rows - row;
      if (left >= kRegisterRows) {
        multiply_block<1, kCols>(block, b, c + row * c_stride, c_stride, words, add);
        continue;
      }
      constexpr int kWide = kCols * kRegisterWords;
      alignas(64) float sums[kRegisterRows * kWide] = {};
      for (int r = 0; add && r < left; ++r) std::copy_n(c + (row + r) * c_stride, kWide, sums + r * kWide);
      multiply_block<1, kCols>(block, b, sums, kWide, words, add);
      for (int r = 0; r < left; ++r) std::copy_n(sums + r * kWide, kWide, c + (row + r) * c_stride);
    }
  }

  /// Registers 0 to 3 hold c, 4 and 5 a, 6 and 7 b.
  template <int kRows, int kCols>
  static void multiply_block(const TileView& a, const TileView& b, float* c, std::ptrdiff_t c_stride,
                             int words, bool add) {
    using R = Registers;
    float* const below = c + kRegisterRows * c_stride;
    if (add) {
      R::template load<0>(c, c_stride);
      if (kCols > 1) R::template load<1>(c + kRegisterWords, c_stride);
      if (kRows > 1) R::template load<2>(below, c_stride);
      if (kRows > 1 && kCols > 1) R::template load<3>(below + kRegisterWords, c_stride);
    } else {
      R::template clear<0>();
      if (kCols > 1) R::template clear<1>();
      if (kRows > 1) R::template clear<2>();
      if (kRows > 1 && kCols > 1) R::template clear<3>();
    }
    for (int word = 0; word < words; word += kRegisterWords) {
      const float* const right = b.row(word);
      R::template load<6>(right, b.stride);
      R::template load<4>(a.data + word, a.stride);
      R::template add_products<0, 4, 6>();
      if (kCols > 1) R::template load<7>(right + kRegisterWords, b.stride);
      if (kCols > 1) R::template add_products<1, 4, 7>();
      if (kRows > 1) R::template load<5>(a.row(kRegisterRows) + word, a.stride);
      if (kRows > 1) R::template add_products<2, 5, 6>();
      if (kRows > 1 && kCols > 1) R::template add_products<3, 5, 7>();
    }
    R::template store<0>(c, c_stride);
    if (kCols > 1) R::template store<1>(c + kRegisterWords, c_stride);
    if (kRows > 1) R::template store<2>(below, c_stride);
    if (kRows > 1 && kCols > 1) R::template store<3>(below + kRegisterWords, c_stride);
  }

  Tile left_, right_;
};

}  // namespace tilescope
#endif
