// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/judge/compare.hpp"

#ifdef __FAST_MATH__
#error "the comparison must see NaN: compile it without -ffast-math"
#endif

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

/// Position of a finite value on the number line of its type, of `bytes`: neighbours differ by one, both
/// zeros are 0.
std::int64_t ordinal(const std::byte* element, std::int64_t bytes) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, element, static_cast<std::size_t>(bytes));  // little-endian: the low bytes
  const std::uint32_t sign = std::uint32_t{1} << (8 * bytes - 1);
  const std::int64_t magnitude = bits & (sign - 1);
  return bits & sign ? -magnitude : magnitude;
}

bool same_non_finite(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (std::isinf(a) && a == b);
}

/// Elements that are converted together.
constexpr std::int64_t kBlock = 256;

class Comparison {
 public:
  Comparison(ElementType type, std::int64_t count) : type_(type), bytes_(element_bytes(type)) {
    report_.elements = count;
  }

  /// Takes the elements [begin, begin + count), no more than a block.
  void take(const Tensor& actual, std::span<const double> expected, std::int64_t begin, std::int64_t count) {
    const std::byte* stored = static_cast<const std::byte*>(actual.data()) + begin * bytes_;
    float values[kBlock], rounded[kBlock];
    std::byte nearest[kBlock * sizeof(float)];  // `rounded` as it would be stored
    widen(type_, stored, values, count);
    for (std::int64_t i = 0; i < count; ++i) rounded[i] = static_cast<float>(expected[begin + i]);
    round_to(type_, rounded, count);
    narrow(type_, rounded, nearest, count);
    for (std::int64_t i = 0; i < count; ++i) {
      if (std::isfinite(values[i]) && std::isfinite(rounded[i])) {
        take_ulp(ordinal(stored + i * bytes_, bytes_) - ordinal(nearest + i * bytes_, bytes_));
        take_error(begin + i, values[i], expected[begin + i]);
      } else if (!same_non_finite(values[i], rounded[i])) {
        take_non_finite(begin + i, values[i], expected[begin + i]);
      }
    }
  }

  ErrorReport report() const {
    ErrorReport report = report_;
    if (finite_ > 0) report.rmse = std::sqrt(square_sum_ / static_cast<double>(finite_));
    return report;
  }

 private:
  void take_ulp(std::int64_t difference) {
    report_.max_ulp = std::max<std::int64_t>(report_.max_ulp, std::abs(difference));
  }

  void take_error(std::int64_t index, double actual, double expected) {
    const double error = std::abs(actual - expected);
    square_sum_ += error * error;
    ++finite_;
    if (error <= report_.max_abs && report_.worst_index >= 0) return;
    report_.max_abs = error;
    if (report_.non_finite == 0) set_worst(index, actual, expected);
  }

  void take_non_finite(std::int64_t index, double actual, double expected) {
    if (report_.non_finite++ > 0) return;
    report_.first_non_finite = index;
    set_worst(index, actual, expected);
  }

  void set_worst(std::int64_t index, double actual, double expected) {
    report_.worst_index = index;
    report_.worst_actual = actual;
    report_.worst_expected = expected;
  }

  ElementType type_;
  std::int64_t bytes_;
  ErrorReport report_;
  double square_sum_ = 0;
  std::int64_t finite_ = 0;
};

}  // namespace

ErrorReport compare(const Tensor& actual, std::span<const double> expected) {
  const std::int64_t count = actual.shape().elements();
  if (count != static_cast<std::int64_t>(expected.size())) {
    throw BadInput("elements", std::to_string(expected.size()), "must be " + std::to_string(count));
  }
  Comparison comparison(actual.dtype(), count);
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    comparison.take(actual, expected, begin, std::min(kBlock, count - begin));
  }
  return comparison.report();
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
