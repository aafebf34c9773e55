// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/primitives/fp8_matmul.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu_ref/judge/fp8_dot.hpp"
#include "cpu_ref/numeric/numeric.hpp"

using namespace tilescope;

namespace {

float fp8_value(ElementType dtype, unsigned bits) {
  return dtype == ElementType::fp8e4m3 ? fp8e4m3_to_fp32(static_cast<std::uint8_t>(bits))
                                       : fp8e5m2_to_fp32(static_cast<std::uint8_t>(bits));
}

}  // namespace

TEST_CASE("a sum of fp8 products keeps 13 bits behind the largest exponent, toward zero") {
  const auto dot = [](std::vector<double> a, std::vector<double> b, double sum = 0) {
    return fp8_dot(ElementType::fp8e4m3, a.data(), b.data(), static_cast<std::int64_t>(a.size()), sum);
  };
  CHECK(dot({1, 0x1p-6}, {1, 0x1p-7}) == 1 + 0x1p-13);
  CHECK(dot({1, 0x1p-7}, {1, 0x1p-7}) == 1);  // each on its own
  CHECK(dot({1, 0x1p-7, 0x1p-7}, {1, 0x1p-7, 0x1p-7}) == 1);
  CHECK(dot({1, -0x1p-7}, {1, 0x1p-7}) == 1);                            // not floor
  CHECK(dot({1.5, 0x1p-6}, {1.5, 0x1p-7}) == 2.25 + 0x1p-13 - 0x1p-13);  // exponent 0, but the sum has 1
  CHECK(dot({1.5, -1.5, 0x1p-6}, {1.5, 1.5, 0x1p-7}) == 0x1p-13);
  CHECK(dot({0x1p-6}, {0x1p-7}, 1) == 1 + 0x1p-13);  // the sum so far takes part
  CHECK(dot({0x1p-7}, {0x1p-7}, 1) == 1);
  CHECK(dot({1, 0x1p-7, -1}, {1, 0x1p-7, 1}) == 0);
  CHECK(dot({0, 0x1p-7}, {448, 0x1p-7}) == 0x1p-14);  // a zero has no exponent
  CHECK(dot({0x1p-9, 0x1p-9}, {1, -1}) == 0);
  std::vector<double> ones(64, 1), small(64, 0x1p-7);
  ones[0] = small[0] = 0;
  small[32] = ones[32] = 16;  // in the second instruction: the first 31 are there as one number
  CHECK(dot(ones, small) == 256 + std::floor(31 * 0x1p-7 * 32) / 32);
}

TEST_CASE("vectors sum fp8 products as one number after the other does") {
  std::mt19937 random(3);
  std::uniform_int_distribution<unsigned> byte(0, 255);
  for (const ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
    CAPTURE(to_string(dtype));
    const auto any = [&] {
      for (;;) {
        const float x = byte(random) < 64 ? 0.0f : fp8_value(dtype, byte(random));
        if (std::isfinite(x)) return x;
      }
    };
    for (const int depth : {1, 32, 80, 129}) {
      for (const bool transposed : {false, true}) {
        constexpr int kRows = 5, kCols = 21;
        const int stride = padded(kCols);
        std::vector<float> a(static_cast<std::size_t>(kRows * depth)),
            b(static_cast<std::size_t>(depth * stride)), c(static_cast<std::size_t>(kRows * stride));
        for (float& x : a) x = any();
        for (float& x : b) x = any();
        for (float& x : c)
          x = std::ldexp(static_cast<float>(byte(random)) - 100.3f, static_cast<int>(byte(random)) % 30 - 15);
        const std::vector<float> start = c;
        const LeftOperand left =
            transposed ? LeftOperand{a.data(), 1, kRows} : LeftOperand{a.data(), depth, 1};
        for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
          c = start;
          fp8_tile_matmul(dtype, left, b.data(), stride, c.data(), stride, kRows, kCols, depth, accumulate);
          int wrong = 0;
          for (int row = 0; row < kRows; ++row) {
            for (int col = 0; col < kCols; ++col) {
              std::vector<double> x, y;
              for (int k = 0; k < depth; ++k) {
                x.push_back(static_cast<double>(left.data[row * left.row_stride + k * left.depth_stride]));
                y.push_back(static_cast<double>(b[static_cast<std::size_t>(k * stride + col)]));
              }
              const auto at = static_cast<std::size_t>(row * stride + col);
              const double sum = accumulate == Accumulate::yes ? static_cast<double>(start[at]) : 0.0;
              wrong += static_cast<double>(c[at]) != fp8_dot(dtype, x.data(), y.data(), depth, sum);
            }
          }
          CAPTURE(depth);
          CHECK(wrong == 0);
        }
      }
    }
  }
}
