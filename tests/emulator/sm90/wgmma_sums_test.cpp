// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/wgmma_sums.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "cpu_ref/judge/fp8_dot.hpp"
#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope::gpu::emulator::wgmma_sums_test {

constexpr int kRows = 16, kCols = 24;

struct Problem {
  std::vector<float> a, b, c;
};
/// Numbers of every size that the type has, zeros among them.
Problem draw(ElementType type, int depth, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto wide = [&](int exponents) {
    return random() % 8 == 0
               ? 0.0f
               : std::ldexp(normal(random), static_cast<int>(random() % exponents) - exponents / 2);
  };
  Problem problem;
  for (int i = 0; i < kRows * depth; ++i) problem.a.push_back(wide(20));
  for (int i = 0; i < depth * kCols; ++i) problem.b.push_back(wide(20));
  for (int i = 0; i < kRows * kCols; ++i) problem.c.push_back(wide(30));
  round_to(type, problem.a.data(), static_cast<std::int64_t>(problem.a.size()));
  round_to(type, problem.b.data(), static_cast<std::int64_t>(problem.b.size()));
  return problem;
}

TEST_CASE("emulator: fp8 sums are Hopper's to the bit") {
  for (const ElementType type : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
    std::mt19937 random(3);
    const SumRule rule = sum_rule(type);
    Problem problem = draw(type, rule.depth, random);
    for (float& x : problem.c) x = std::ldexp(std::trunc(std::ldexp(x, 8)), -8);  // as an earlier sum is cut
    std::vector<float> sums = problem.c;
    add_products(rule, problem.a.data(), problem.b.data(), sums.data(), kRows, kCols);
    int wrong = 0;
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < kCols; ++col) {
        std::vector<double> a, b;
        for (int k = 0; k < rule.depth; ++k) {
          a.push_back(problem.a[static_cast<std::size_t>(row * rule.depth + k)]);
          b.push_back(problem.b[static_cast<std::size_t>(k * kCols + col)]);
        }
        const auto at = static_cast<std::size_t>(row * kCols + col);
        wrong += static_cast<double>(sums[at]) !=
                 fp8_dot(type, a.data(), b.data(), rule.depth, static_cast<double>(problem.c[at]));
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("emulator: 16-bit sums are those of exact numbers, cut") {
  for (const ElementType type : {ElementType::fp16, ElementType::bf16}) {
    std::mt19937 random(5);
    const SumRule rule = sum_rule(type);
    const Problem problem = draw(type, rule.depth, random);
    std::vector<float> sums = problem.c;
    add_products(rule, problem.a.data(), problem.b.data(), sums.data(), kRows, kCols);
    for (int row = 0; row < kRows; ++row) {
      for (int col = 0; col < kCols; ++col) {
        const auto at = static_cast<std::size_t>(row * kCols + col);
        double exact = static_cast<double>(problem.c[at]), largest = std::fabs(exact);
        for (int k = 0; k < rule.depth; ++k) {
          const double product =
              static_cast<double>(problem.a[static_cast<std::size_t>(row * rule.depth + k)]) *
              static_cast<double>(problem.b[static_cast<std::size_t>(k * kCols + col)]);
          exact += product;
          largest = std::max(largest, std::fabs(product));
        }
        // 17 cuts at 2^-25 of the largest, and one of the sum at 2^-23
        const double allowed = 17 * std::ldexp(largest, -24) + std::ldexp(std::fabs(exact), -23);
        REQUIRE(std::fabs(static_cast<double>(sums[at]) - exact) <= allowed);
      }
    }
  }
}

TEST_CASE("emulator: 16-bit terms far below the largest count for nothing, and sums are cut toward zero") {
  const SumRule rule = sum_rule(ElementType::fp16);
  std::vector<float> a(16, 1.0f), b(16, 0.0f);
  b[0] = 1.0f;
  b[1] = 0x1p-24f;
  float c = 0;
  b[1] = 0x1.8p-23f;  // the last half of a unit is cut
  add_products(rule, a.data(), b.data(), &c, 1, 1);
  CHECK(c == 1.0f + 0x1p-23f);
  float large = 0x1p20f;
  b[0] = 0x1p-6f;  // beyond 25 bits
  b[1] = 0;
  add_products(rule, a.data(), b.data(), &large, 1, 1);
  CHECK(large == 0x1p20f);
}

TEST_CASE("emulator: NaN and infinity in sums stay") {
  const SumRule rule = sum_rule(ElementType::bf16);
  std::vector<float> a(16, 1.0f), b(32, 0.5f), c(2, 0.0f);
  b[0] = std::numeric_limits<float>::infinity();
  add_products(rule, a.data(), b.data(), c.data(), 1, 2);
  CHECK(c[0] == std::numeric_limits<float>::infinity());
  CHECK(c[1] == 8.0f);
  c[1] = std::numeric_limits<float>::quiet_NaN();
  add_products(rule, a.data(), b.data(), c.data(), 1, 2);
  CHECK(std::isnan(c[1]));
}

}  // namespace tilescope::gpu::emulator::wgmma_sums_test
