// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/primitives/bf16_matmul.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <stdexcept>

#ifdef __x86_64__
#include <hwy/targets.h>
#include <immintrin.h>
// Highway of Debian 12 has several older instructions in place of these.
#define TILESCOPE_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#else
#define TILESCOPE_BF16
#endif

namespace tilescope {

#ifdef __x86_64__
namespace {

constexpr int kLanes = 16;
constexpr int kBlockRows = 8;  // of accumulators, as tile_math.cpp's for AVX-512

/// sums += the two products of each word. No intrinsic: clang 16 crashes at it.
TILESCOPE_BF16 inline __m512 add_products(__m512 sums, __m512 a, __m512 b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
  return sums;
}

/// c (kRows, kVectors vectors) = or += a * b, with all of c in registers.
template <int kRows, int kVectors>
TILESCOPE_BF16 void block_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                                 std::ptrdiff_t c_stride, int words, bool accumulate) {
  __m512 sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = accumulate ? _mm512_loadu_ps(c + r * c_stride + v * kLanes) : _mm512_setzero_ps();
    }
  }
  const float* left = a.data;
  for (int k = 0; k < words; ++k) {
    __m512 row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = _mm512_loadu_ps(b + v * kLanes);
    for (int r = 0; r < kRows; ++r) {
      const __m512 broadcast = _mm512_set1_ps(left[r * a.row_stride]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = add_products(sums[r][v], broadcast, row[v]);
    }
    left += a.depth_stride;
    b += b_stride;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(c + r * c_stride + v * kLanes, sums[r][v]);
  }
}

/// Fewer rows than a block has.
template <int kRows, int kVectors>
void ragged_block_matmul(int rows, const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                         std::ptrdiff_t c_stride, int words, bool accumulate) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return ragged_block_matmul<kRows - 1, kVectors>(rows, a, b, b_stride, c, c_stride, words, accumulate);
    }
  }
  block_matmul<kRows, kVectors>(a, b, b_stride, c, c_stride, words, accumulate);
}

template <int kVectors>
void panel_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                  std::ptrdiff_t c_stride, int rows, int words, bool accumulate) {
  for (int row = 0; row < rows; row += kBlockRows) {
    ragged_block_matmul<kBlockRows, kVectors>(rows - row, a.from(row), b, b_stride, c + row * c_stride,
                                              c_stride, words, accumulate);
  }
}

}  // namespace

bool multiplies_bf16_pairs() {
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 && __builtin_cpu_supports("avx512bf16");
}

void bf16_tile_matmul(const LeftOperand& a, const float* b, std::ptrdiff_t b_stride, float* c,
                      std::ptrdiff_t c_stride, int rows, int cols, int words, Accumulate accumulate) {
  const bool add = accumulate == Accumulate::yes;
  int col = 0;
  for (; col + kLanes < cols; col += 2 * kLanes) {
    panel_matmul<2>(a, b + col, b_stride, c + col, c_stride, rows, words, add);
  }
  if (col < cols) panel_matmul<1>(a, b + col, b_stride, c + col, c_stride, rows, words, add);
}

#else
bool multiplies_bf16_pairs() { return false; }
void bf16_tile_matmul(const LeftOperand&, const float*, std::ptrdiff_t, float*, std::ptrdiff_t, int, int, int,
                      Accumulate) {
  throw std::logic_error("this processor has no products of bf16 pairs");
}
#endif

TILESCOPE_BF16 void pair_float_rows(const float* values, std::ptrdiff_t stride, int rows, int cols,
                                    float* words, std::ptrdiff_t words_stride) {
  for (int row = 0; row < rows; row += 2) {
    const float* const first = values + row * stride;
    const bool last = row + 1 == rows;
    const float* const second = last ? first : first + stride;
    float* const to = words + row / 2 * words_stride;
    const std::uint32_t kept = last ? 0 : 0xFFFF0000;
    for (int col = 0; col < cols; ++col) {
      to[col] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(first[col]) >> 16 |
                                     (std::bit_cast<std::uint32_t>(second[col]) & kept));
    }
  }
}

TILESCOPE_BF16 void pair_rows(const std::uint16_t* first, const std::uint16_t* second, int cols,
                              float* words) {
  const std::uint32_t lower = first == nullptr ? 0 : 0xFFFF, upper = second == nullptr ? 0 : 0xFFFF0000;
  if ((lower | upper) == 0) return void(std::fill_n(words, cols, 0.0f));
  if (lower == 0) first = second;
  if (upper == 0) second = first;
  for (int col = 0; col < cols; ++col) {
    const std::uint32_t below = first[col], above = second[col];
    words[col] = std::bit_cast<float>((above << 16 & upper) | (below & lower));
  }
}

}  // namespace tilescope
