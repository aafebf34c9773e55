// SPDX-License-Identifier: Apache-2.0
// The vectorised tile arithmetic against plain loops, on every instruction set.
#include "cpu_ref/primitives/tile_math.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu_ref/primitives/tile.hpp"
#include "tests/cpu_ref/instruction_sets.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr float kInfinityFp32 = std::numeric_limits<float>::infinity();

void fill(Tile& tile, int rows, int cols, testing::ProblemGenerator& random) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < cols; ++c) tile.row(r)[c] = static_cast<float>(random.between(-1000, 1000)) / 256.0f;
  }
}

TEST_CASE("2^x: within 2 ulp, exact at integers, 0 for -inf, NaN for NaN") {
  testing::for_each_instruction_set([] {
    std::vector<float> x;
    for (float value = -126.0f; value <= 127.0f; value += 0.00173f) x.push_back(value);
    for (float value = -1e-3f; value <= 1e-3f; value += 1.7e-7f) x.push_back(value);
    std::vector<float> y = x;
    exp2_values(y.data(), static_cast<std::int64_t>(y.size()));
    double worst_ulp = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp2(static_cast<double>(x[i]));
      const double ulp = std::exp2(std::floor(static_cast<double>(x[i])) - 23);
      worst_ulp = std::max(worst_ulp, std::fabs(static_cast<double>(y[i]) - exact) / ulp);
    }
    CHECK(worst_ulp < 2.0);
    for (int n = -126; n <= 127; ++n) {
      float value = static_cast<float>(n);
      exp2_values(&value, 1);
      CHECK(value == std::ldexp(1.0f, n));
    }
    float specials[] = {-kInfinityFp32, -1e30f, -127.0f, std::numeric_limits<float>::quiet_NaN(), -0.0f};
    exp2_values(specials, 5);
    CHECK(specials[0] == 0.0f);
    CHECK(specials[1] == 0.0f);
    CHECK(specials[2] == 0.0f);
    CHECK(std::isnan(specials[3]));
    CHECK(specials[4] == 1.0f);
  });
}

TEST_CASE("tile products of all sizes, by rows and transposed, fresh and accumulated") {
  testing::for_each_instruction_set([] {
    for (unsigned seed = 0; seed < 200; ++seed) {
      testing::ProblemGenerator random(seed);
      const int rows = random.between(1, 40), cols = random.between(1, 70), depth = random.between(1, 50);
      const bool transposed = random.chance(0.5), accumulate = random.chance(0.5);
      CAPTURE(seed);
      Tile a = transposed ? Tile(depth, rows) : Tile(rows, depth);
      Tile b(depth, cols), c(rows, cols);
      transposed ? fill(a, depth, rows, random) : fill(a, rows, depth, random);
      fill(b, depth, cols, random);
      fill(c, rows, cols, random);
      const Tile before = [&] {
        Tile copy(rows, cols);
        std::copy_n(c.data(), c.size(), copy.data());
        return copy;
      }();
      tile_matmul(transposed ? a.transposed() : a.by_rows(), b.view(), c, rows, cols, depth,
                  accumulate ? Accumulate::yes : Accumulate::no);
      for (int r = 0; r < rows; ++r) {
        for (int col = 0; col < cols; ++col) {
          double sum = accumulate ? static_cast<double>(before.row(r)[col]) : 0.0;
          for (int k = 0; k < depth; ++k) {
            const float left = transposed ? a.row(k)[r] : a.row(r)[k];
            sum += static_cast<double>(left) * static_cast<double>(b.row(k)[col]);
          }
          REQUIRE(static_cast<double>(c.row(r)[col]) == doctest::Approx(sum).epsilon(1e-5));
        }
      }
    }
  });
}

TEST_CASE("transposed tiles are padded with zeros") {
  testing::for_each_instruction_set([] {
    for (unsigned seed = 0; seed < 60; ++seed) {
      testing::ProblemGenerator random(seed);
      const int rows = random.between(1, 70), cols = random.between(1, 70);
      Tile in(rows, cols), out(cols, rows);
      fill(in, rows, cols, random);
      out.fill(99.0f);
      transpose_tile(in.view(), rows, cols, -2.0f, out);
      for (int c = 0; c < cols; ++c) {
        for (int r = 0; r < padded(rows); ++r) {
          REQUIRE(out.row(c)[r] == (r < rows ? -2.0f * in.row(r)[c] : 0.0f));
        }
      }
    }
  });
}

TEST_CASE("online softmax over tiles is the softmax of the whole row") {
  testing::for_each_instruction_set([] {
    for (unsigned seed = 0; seed < 50; ++seed) {
      testing::ProblemGenerator random(seed);
      const int queries = random.between(1, 40), tiles = random.between(1, 4), keys = random.between(1, 20);
      const SoftmaxScale scale{0.01f * static_cast<float>(random.between(1, 300)),
                               random.chance(0.3) ? 8.0f : 0.0f};
      Tile row_max(1, queries), row_sum(1, queries), rescale(1, queries);
      row_max.fill(-kInfinityFp32);
      std::vector<std::vector<float>> scores(static_cast<std::size_t>(queries));
      CAPTURE(seed);
      for (int t = 0; t < tiles; ++t) {
        Tile tile(keys, queries);
        fill(tile, keys, queries, random);
        for (int j = 0; j < keys; ++j) {
          for (int i = 0; i < queries; ++i) {
            if (random.chance(0.2)) tile.row(j)[i] = -kInfinityFp32;
            scores[static_cast<std::size_t>(i)].push_back(tile.row(j)[i]);
          }
        }
        online_softmax(tile.data(), tile.stride(), keys, queries, scale, row_max.data(), row_sum.data(),
                       rescale.data());
      }
      for (int i = 0; i < queries; ++i) {
        const std::vector<float>& row = scores[static_cast<std::size_t>(i)];
        const float maximum = *std::max_element(row.begin(), row.end());
        REQUIRE(row_max.data()[i] == maximum);
        double sum = 0;
        for (float s : row) {
          if (s != -kInfinityFp32)
            sum += std::exp2((static_cast<double>(s) - static_cast<double>(maximum)) *
                             static_cast<double>(scale.log2));
        }
        sum *= std::exp2(static_cast<double>(scale.log2_offset));
        REQUIRE(static_cast<double>(row_sum.data()[i]) == doctest::Approx(sum).epsilon(2e-5));
      }
    }
  });
}

TEST_CASE("row operations of every length") {
  testing::for_each_instruction_set([] {
    for (int count = 1; count < 50; ++count) {
      testing::ProblemGenerator random(static_cast<unsigned>(count));
      Tile a(1, count), b(1, count), c(1, count);
      fill(a, 1, count, random);
      fill(b, 1, count, random);
      const auto fill_c = [&] { std::copy_n(a.data(), count, c.data()); };
      double dot = 0;
      for (int i = 0; i < count; ++i)
        dot += static_cast<double>(a.data()[i]) * static_cast<double>(b.data()[i]);
      CHECK(static_cast<double>(dot_product(a.data(), b.data(), count)) ==
            doctest::Approx(dot).epsilon(1e-5));
      CHECK(row_maximum(a.data(), count, -kInfinityFp32) == *std::max_element(a.data(), a.data() + count));
      CHECK(row_maximum(a.data(), count, 1e9f) == 1e9f);
      fill_c();
      scale_values(c.data(), 3.0f, count);
      for (int i = 0; i < count; ++i) REQUIRE(c.data()[i] == a.data()[i] * 3.0f);
      fill_c();
      multiply_values(c.data(), b.data(), count);
      for (int i = 0; i < count; ++i) REQUIRE(c.data()[i] == a.data()[i] * b.data()[i]);
      fill_c();
      add_values(c.data(), b.data(), count);
      for (int i = 0; i < count; ++i) REQUIRE(c.data()[i] == a.data()[i] + b.data()[i]);
      fill_c();
      const float maximum = row_maximum(c.data(), count, -kInfinityFp32);
      const float sum = exp2_row(c.data(), count, {0.5f, 0.0f}, maximum);
      double expected = 0;
      for (int i = 0; i < count; ++i) expected += std::exp2(0.5 * static_cast<double>(a.data()[i] - maximum));
      CHECK(static_cast<double>(sum) == doctest::Approx(expected).epsilon(1e-5));
    }
  });
}

}  // namespace
}  // namespace tilescope
