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
#define TILESCOPE_AVX512 __attribute__((target("avx512f,avx512dq")))

namespace tilescope {

constexpr int kRegisterRows = 16;
constexpr int kRegisterWords = 16;  // of a row: of the depth, or columns

/// Products that read nothing behind their operands. What does not lie by rows, or does not fill its
/// registers, is copied first: of the left operand a strip of rows at a time, which stays in the first cache.
template <typename Registers>
class RegisterMatmul {
 public:
  /// As bf16_tile_matmul(), summed in the order of the instruction.
  void operator()(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate) {
    const bool add = accumulate == Accumulate::yes;
    const Operand right = right_operand({b, b_stride}, cols, words);
    for (int row = 0; row < rows; row += kStripRows) {
      const int height = std::min(rows - row, kStripRows), whole = height / kRegisterRows * kRegisterRows;
      const Operand left = left_strip(a.from(row), height, words);
      float* const sums = c + row * c_stride;
      if (whole == kStripRows) multiply_strip<2>(left, right, sums, c_stride, cols, words, add);
      if (whole == kRegisterRows) multiply_strip<1>(left, right, sums, c_stride, cols, words, add);
      if (whole == height) continue;
      multiply_rows(left.from_row(whole), right, sums + whole * c_stride, c_stride, height - whole, cols,
                    words, add);
    }
  }

 private:
  static constexpr int kStripRows = 2 * kRegisterRows;

  /// Words that fill registers, and behind them those that do not, with zeros.
  struct Operand {
    TileView whole, last;

    Operand from_row(int row) const { return {{whole.row(row), whole.stride}, {last.row(row), last.stride}}; }
  };

  static constexpr int up(int count, int multiple) { return (count + multiple - 1) / multiple * multiple; }
  static constexpr int in_whole_registers(int words) { return words / kRegisterWords * kRegisterWords; }

  static void grow(Tile& tile, int rows, int cols) {
    const auto needed = static_cast<std::size_t>(rows * tile.stride());
    if (tile.stride() < cols || tile.size() < needed) tile = Tile(rows, cols);
  }

  Operand left_strip(const LeftOperand& a, int rows, int words) {
    const int whole = in_whole_registers(words);
    grow(left_, kStripRows, up(words, kRegisterWords));
    const TileView copied_last = {left_.data() + whole, left_.stride()};
    if (a.depth_stride != 1) {
      transpose({a.data, a.depth_stride}, rows, words, left_);
    } else if (rows % kRegisterRows != 0) {
      copy_rows({a.data, a.row_stride}, rows, words, left_.data(), left_.stride());
    } else {
      if (whole < words)
        copy_rows({a.data + whole, a.row_stride}, rows, words - whole, left_.data() + whole, left_.stride());
      return {{a.data, a.row_stride}, copied_last};
    }
    return {left_.view(), copied_last};
  }

  Operand right_operand(const TileView& b, int cols, int words) {
    const int whole = in_whole_registers(words);
    if (whole == words) return {b, {}};
    grow(right_, kRegisterWords, cols);
    copy_rows({b.row(whole), b.stride}, words - whole, cols, right_.data(), right_.stride());
    for (int row = words - whole; row < kRegisterWords; ++row)
      std::fill_n(right_.row(row), padded(cols), 0.0f);
    return {b, right_.view()};
  }

  /// With zeros behind each row, where it does not fill its registers.
  TILESCOPE_AVX512 static void copy_rows(const TileView& from, int rows, int words, float* to,
                                         std::ptrdiff_t to_stride) {
    const auto last = static_cast<__mmask16>((1u << words % kRegisterWords) - 1);
    for (int row = 0; row < rows; ++row) {
      const float* const source = from.row(row);
      float* const place = to + row * to_stride;
      int word = 0;
      for (; word + kRegisterWords <= words; word += kRegisterWords) {
        _mm512_storeu_ps(place + word, _mm512_loadu_ps(source + word));
      }
      if (last != 0) _mm512_storeu_ps(place + word, _mm512_maskz_loadu_ps(last, source + word));
    }
  }

  /// to (rows, words) = transpose of `from`, with zeros behind the words.
  static void transpose(const TileView& from, int rows, int words, Tile& to) {
    for (int row = 0; row < rows; row += kRegisterRows) {
      for (int word = 0; word < words; word += kRegisterWords) {
        const TileView block = {from.row(word) + row, from.stride};
        float* const place = to.row(row) + word;
        const int height = std::min(rows - row, kRegisterRows),
                  width = std::min(words - word, kRegisterWords);
        const bool whole = std::min(height, width) == kRegisterRows;
        whole ? transpose_block(block, place, to.stride())
              : transpose_part(block, height, width, place, to.stride());
      }
    }
  }

  static void transpose_part(const TileView& from, int rows, int words, float* to, std::ptrdiff_t to_stride) {
    for (int row = 0; row < rows; ++row) {
      for (int k = 0; k < kRegisterWords; ++k) to[row * to_stride + k] = k < words ? from.row(k)[row] : 0.0f;
    }
  }

  TILESCOPE_AVX512 static void transpose_block(const TileView& from, float* to, std::ptrdiff_t to_stride) {
    for (int row = 0; row < kRegisterRows; row += 4) {
      const __m512 words[] = {every_fourth(from, 0, row), every_fourth(from, 1, row),
                              every_fourth(from, 2, row), every_fourth(from, 3, row)};
      // The masked forms, of all lanes: g++ 12 warns of what the others leave undefined.
      const __m512d low01 = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(0xFFFF, words[0], words[1]));
      const __m512d low23 = _mm512_castps_pd(_mm512_maskz_unpacklo_ps(0xFFFF, words[2], words[3]));
      const __m512d high01 = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(0xFFFF, words[0], words[1]));
      const __m512d high23 = _mm512_castps_pd(_mm512_maskz_unpackhi_ps(0xFFFF, words[2], words[3]));
      float* const place = to + row * to_stride;
      _mm512_storeu_pd(place, _mm512_maskz_unpacklo_pd(0xFF, low01, low23));
      _mm512_storeu_pd(place + to_stride, _mm512_maskz_unpackhi_pd(0xFF, low01, low23));
      _mm512_storeu_pd(place + 2 * to_stride, _mm512_maskz_unpacklo_pd(0xFF, high01, high23));
      _mm512_storeu_pd(place + 3 * to_stride, _mm512_maskz_unpackhi_pd(0xFF, high01, high23));
    }
  }

  /// Four columns, from `col` on, of rows first, first + 4, + 8 and + 12.
  TILESCOPE_AVX512 static __m512 every_fourth(const TileView& from, int first, int col) {
    __m512 rows = _mm512_castps128_ps512(_mm_loadu_ps(from.row(first) + col));
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(from.row(first + 4) + col), 1);
    rows = _mm512_insertf32x4(rows, _mm_loadu_ps(from.row(first + 8) + col), 2);
    return _mm512_insertf32x4(rows, _mm_loadu_ps(from.row(first + 12) + col), 3);
  }

  /// As many rows as kRows registers have.
  template <int kRows>
  static void multiply_strip(const Operand& a, const Operand& b, float* c, std::ptrdiff_t c_stride, int cols,
                             int words, bool add) {
    int col = 0;
    for (; col + kRegisterWords < cols; col += 2 * kRegisterWords) {
      multiply_block<kRows, 2>(a, b, col, c + col, c_stride, words, add);
    }
    if (col < cols) multiply_block<kRows, 1>(a, b, col, c + col, c_stride, words, add);
  }

  /// Fewer rows than a register has.
  static void multiply_rows(const Operand& a, const Operand& b, float* c, std::ptrdiff_t c_stride, int rows,
                            int cols, int words, bool add) {
    alignas(64) float sums[kRegisterRows * kRegisterWords] = {};
    for (int col = 0; col < cols; col += kRegisterWords) {
      for (int r = 0; add && r < rows; ++r) {
        std::copy_n(c + r * c_stride + col, kRegisterWords, sums + r * kRegisterWords);
      }
      multiply_block<1, 1>(a, b, col, sums, kRegisterWords, words, add);
      for (int r = 0; r < rows; ++r) {
        std::copy_n(sums + r * kRegisterWords, kRegisterWords, c + r * c_stride + col);
      }
    }
  }

  /// Columns of b from `col` on. Registers 0 to 3 hold c, 4 and 5 a, 6 and 7 b.
  template <int kRows, int kCols>
  static void multiply_block(const Operand& a, const Operand& b, int col, float* c, std::ptrdiff_t c_stride,
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
      const bool whole = word + kRegisterWords <= words;
      const TileView left = whole ? TileView{a.whole.data + word, a.whole.stride} : a.last;
      const TileView right = {whole ? b.whole.row(word) + col : b.last.data + col,
                              whole ? b.whole.stride : b.last.stride};
      R::template load<6>(right.data, right.stride);
      R::template load<4>(left.data, left.stride);
      R::template add_products<0, 4, 6>();
      if (kCols > 1) R::template load<7>(right.data + kRegisterWords, right.stride);
      if (kCols > 1) R::template add_products<1, 4, 7>();
      if (kRows > 1) R::template load<5>(left.row(kRegisterRows), left.stride);
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
#undef TILESCOPE_AVX512
#endif
