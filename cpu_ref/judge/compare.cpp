// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/compare.hpp"

#ifdef __FAST_MATH__
#error "the comparison must see NaN: compile it without -ffast-math"
#endif

#include <cmath>
#include <cstdlib>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

/// Position of a finite value on the number line of `type`: neighbours differ by one, both zeros are 0.
std::int64_t ordinal(ElementType type, float value) {
  std::uint32_t bits = 0;
  narrow(type, &value, &bits, 1);  // little-endian: the low bytes
  const std::uint32_t sign = std::uint32_t{1} << (8 * element_bytes(type) - 1);
  const std::int64_t magnitude = bits & (sign - 1);
  return bits & sign ? -magnitude : magnitude;
}

bool same_non_finite(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (std::isinf(a) && a == b);
}

}  // namespace

ErrorReport compare(const Tensor& actual, std::span<const double> expected) {
  const std::int64_t count = actual.shape().elements();
  if (count != static_cast<std::int64_t>(expected.size())) {
    throw BadInput("elements", std::to_string(expected.size()), "must be " + std::to_string(count));
  }
  ErrorReport report;
  report.elements = count;
  double square_sum = 0;
  std::int64_t finite = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = actual.get(i);
    float rounded = static_cast<float>(expected[i]);
    round_to(actual.dtype(), &rounded, 1);
    if (!std::isfinite(value) || !std::isfinite(rounded)) {
      if (same_non_finite(value, rounded)) continue;
      if (report.non_finite++ == 0) {
        report.first_non_finite = report.worst_index = i;
        report.worst_actual = value;
        report.worst_expected = expected[i];
      }
      continue;
    }
    const double error = std::abs(value - expected[i]);
    square_sum += error * error;
    ++finite;
    const std::int64_t ulp =
        std::abs(ordinal(actual.dtype(), static_cast<float>(value)) - ordinal(actual.dtype(), rounded));
    if (ulp > report.max_ulp) report.max_ulp = ulp;
    if (error > report.max_abs || report.worst_index < 0) {
      report.max_abs = error;
      if (report.non_finite == 0) {
        report.worst_index = i;
        report.worst_actual = value;
        report.worst_expected = expected[i];
      }
    }
  }
  if (finite > 0) report.rmse = std::sqrt(square_sum / static_cast<double>(finite));
  return report;
}

std::vector<double> to_fp64(const Tensor& tensor) {
  const std::int64_t count = tensor.shape().elements();
  const Tensor wide = tensor.as(ElementType::fp32);
  return {wide.floats(), wide.floats() + count};
}

std::vector<double> input_in_fp64(const TensorSet& tensors, TensorName name) {
  const Shape& shape = tensors[name].shape();
  std::vector<double> values = to_fp64(tensors[name]);
  if (name > TensorName::v || tensors.descales(name).empty()) return values;
  for (std::int64_t row = 0; row < shape.batch * shape.heads * shape.rows; ++row) {
    const std::int64_t batch_head = row / shape.rows;
    const float descale =
        tensors.descale(name, batch_head / shape.heads, batch_head % shape.heads, row % shape.rows);
    for (std::int64_t col = 0; col < shape.cols; ++col) {
      values[static_cast<std::size_t>(row * shape.cols + col)] *= static_cast<double>(descale);
    }
  }
  return values;
}

ErrorReport compare(const Tensor& actual, const Tensor& expected) {
  if (actual.shape() != expected.shape()) {
    throw BadInput("two tensors that are to be compared must have one shape");
  }
  return compare(actual, to_fp64(expected));
}

std::string describe_index(const Shape& shape, std::int64_t index) {
  const std::int64_t col = index % shape.cols, row = index / shape.cols % shape.rows;
  const std::int64_t head = index / (shape.cols * shape.rows) % shape.heads;
  const std::int64_t batch = index / (shape.cols * shape.rows * shape.heads);
  return "[batch " + std::to_string(batch) + ", head " + std::to_string(head) + ", row " +
         std::to_string(row) + ", col " + std::to_string(col) + "]";
}

}  // namespace tilescope
