// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/wgmma_sums.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace tilescope::gpu::emulator {
namespace {

constexpr int kZerosExponent = -1000;  // below those of all others
constexpr int kLeastFp32 = -126;

int exponent_of(float x, int least) {
  if (x == 0) return kZerosExponent;
  return std::max(static_cast<int>(std::bit_cast<std::uint32_t>(x) >> 23 & 0xFF) - 127, least);
}

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52);
}

/// Toward zero, to so many bits behind the leading one.
double cut(double x, int fraction_bits) {
  return std::bit_cast<double>(std::bit_cast<std::uint64_t>(x) & ~std::uint64_t{0} << (52 - fraction_bits));
}

bool all_finite(const float* x, int count) {
  return std::all_of(x, x + count, [](float value) { return std::isfinite(value); });
}

/// Where NaN or infinity take part, only what kind of number comes out counts.
void add_row_plainly(const float* a, const float* b, float* c, int depth, int cols) {
  for (int col = 0; col < cols; ++col) {
    for (int k = 0; k < depth; ++k) c[col] += a[k] * b[k * cols + col];
  }
}

/// One row. A term's units number fewer than 2^(fraction bits + 2), so that 32 bits hold it.
void add_row(const SumRule& rule, const float* a, const float* b, const std::int32_t* b_exponents, float* c,
             int cols) {
  std::vector<std::int32_t> largest(static_cast<std::size_t>(cols));
  std::vector<double> units(largest.size()), total(largest.size());
  for (int col = 0; col < cols; ++col) {
    largest[static_cast<std::size_t>(col)] = exponent_of(c[col], kLeastFp32);
  }
  for (int k = 0; k < rule.depth; ++k) {
    const std::int32_t exponent = exponent_of(a[k], rule.least_exponent);
    const std::int32_t* row = b_exponents + k * cols;
    for (int col = 0; col < cols; ++col) {
      std::int32_t& most = largest[static_cast<std::size_t>(col)];
      most = std::max(most, exponent + row[col]);
    }
  }
  for (int col = 0; col < cols; ++col) {
    const auto i = static_cast<std::size_t>(col);
    largest[i] = std::max(largest[i], 2 * kLeastFp32);
    units[i] = power_of_two(rule.fraction_bits - largest[i]);
    total[i] = static_cast<std::int32_t>(static_cast<double>(c[col]) * units[i]);
  }
  for (int k = 0; k < rule.depth; ++k) {
    const double left = a[k];
    const float* row = b + k * cols;
    for (int col = 0; col < cols; ++col) {
      const auto i = static_cast<std::size_t>(col);
      total[i] += static_cast<std::int32_t>(left * static_cast<double>(row[col]) * units[i]);
    }
  }
  for (int col = 0; col < cols; ++col) {
    const auto i = static_cast<std::size_t>(col);
    const double sum = total[i] * power_of_two(largest[i] - rule.fraction_bits);
    c[col] = static_cast<float>(cut(sum, rule.kept_fraction_bits));
  }
}

}  // namespace

SumRule sum_rule(ElementType type) {
  switch (type) {
    case ElementType::fp16:
      return {};
    case ElementType::bf16:
      return {16, 25, 23, kLeastFp32};
    case ElementType::fp8e4m3:
      return {32, 13, 13, -6};
    case ElementType::fp8e5m2:
      return {32, 13, 13, -14};
    case ElementType::fp32:
      break;
  }
  throw std::invalid_argument("wgmma does not take operands of this type");
}

SumRule tf32_sum_rule() { return {8, 25, 23, kLeastFp32}; }

void add_products(const SumRule& rule, const float* a, const float* b, float* c, int rows, int cols) {
  std::vector<std::int32_t> exponents(static_cast<std::size_t>(rule.depth * cols));
  std::transform(b, b + rule.depth * cols, exponents.begin(),
                 [&](float x) { return exponent_of(x, rule.least_exponent); });
  const bool finite = all_finite(b, rule.depth * cols);
  for (int row = 0; row < rows; ++row, a += rule.depth, c += cols) {
    if (finite && all_finite(a, rule.depth) && all_finite(c, cols)) {
      add_row(rule, a, b, exponents.data(), c, cols);
    } else {
      add_row_plainly(a, b, c, rule.depth, cols);
    }
  }
}

}  // namespace tilescope::gpu::emulator
