// SPDX-License-Identifier: Apache-2.0
// The comparison must see what it is there to see: NaN, infinities, one ULP, the worst place.
#include "cpu_ref/judge/compare.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "cpu_ref/numeric/numeric.hpp"

namespace tilescope {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor tensor_of(std::vector<double> values, ElementType dtype = ElementType::fp32) {
  Tensor tensor({1, 1, 1, static_cast<std::int64_t>(values.size())}, dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    tensor.set(static_cast<std::int64_t>(i), static_cast<float>(values[i]));
  }
  return tensor;
}

TEST_CASE("equal tensors have no error") {
  const std::vector<double> values = {1.5, -2, 0, -kInfinity, kNaN};
  const ErrorReport report = compare(tensor_of(values), values);
  CHECK(report.elements == 5);
  CHECK(report.non_finite == 0);
  CHECK(report.max_abs == 0);
  CHECK(report.max_ulp == 0);
  CHECK(report.within(0));
}

TEST_CASE("a non-finite value where there should be none, or the reverse, is never within a bound") {
  for (const auto& [actual, expected] :
       {std::pair{kNaN, 1.0}, {1.0, kNaN}, {kInfinity, 1.0}, {1.0, kInfinity}, {kInfinity, -kInfinity}}) {
    const ErrorReport report = compare(tensor_of({0, actual, 5}), std::vector{0.0, expected, 7.0});
    CHECK(report.non_finite == 1);
    CHECK(report.first_non_finite == 1);
    CHECK(report.worst_index == 1);
    CHECK(report.max_abs == 2);
    CHECK_FALSE(report.within(kInfinity));
  }
  CHECK_FALSE(compare(tensor_of({1}), std::vector{1.0}).within(kNaN));
}

TEST_CASE("an element that nobody wrote is seen, in every element type") {
  for (ElementType dtype : kElementTypes) {
    Tensor tensor({1, 2, 3, 4}, dtype);
    tensor.poison();
    for (std::int64_t i = 0; i < 23; ++i) tensor.set(i, 1.0f);
    const ErrorReport report = compare(tensor, std::vector<double>(24, 1.0));
    CHECK(report.non_finite == 1);
    CHECK(report.first_non_finite == 23);
  }
}

TEST_CASE("an overflow that the element type makes right is no error") {
  CHECK(compare(tensor_of({1e6}, ElementType::fp16), std::vector{1e6}).within(0));
  CHECK_FALSE(compare(tensor_of({1e6}), std::vector{kInfinity}).within(kInfinity));
}

TEST_CASE("maximum, mean and place of the error") {
  const ErrorReport report = compare(tensor_of({1, 2, 3, 4}), std::vector{1.0, 2.5, 2.0, 4.0});
  CHECK(report.max_abs == 1.0);
  CHECK(report.worst_index == 2);
  CHECK(report.worst_actual == 3.0);
  CHECK(report.worst_expected == 2.0);
  CHECK(report.rmse == doctest::Approx(std::sqrt((0.25 + 1.0) / 4)));
  CHECK(report.within(1.0));
  CHECK_FALSE(report.within(0.999));
}

TEST_CASE("ULPs are those of the element type and cross zero") {
  for (ElementType dtype : kElementTypes) {
    CAPTURE(to_string(dtype));
    const double next = 1.0 + epsilon(dtype);
    CHECK(compare(tensor_of({next}, dtype), std::vector{1.0}).max_ulp == 1);
    CHECK(compare(tensor_of({-next}, dtype), std::vector{-1.0}).max_ulp == 1);
    CHECK(compare(tensor_of({1.0 - epsilon(dtype) / 2}, dtype), std::vector{1.0}).max_ulp == 1);
    CHECK(compare(tensor_of({0.0}, dtype), std::vector{-0.0}).max_ulp == 0);
  }
  const double smallest = 0x1p-24;  // of fp16
  CHECK(compare(tensor_of({smallest}, ElementType::fp16), std::vector{-smallest}).max_ulp == 2);
}

TEST_CASE("tensors compare with tensors, shapes must agree") {
  CHECK(compare(tensor_of({1, 2}), tensor_of({1, 2.25}, ElementType::fp16)).max_abs == 0.25);
  CHECK_THROWS_AS(compare(tensor_of({1, 2}), tensor_of({1})), BadInput);
  CHECK_THROWS_AS(compare(tensor_of({1, 2}), std::vector{1.0}), BadInput);
}

TEST_CASE("an index is described by its coordinates") {
  const Shape shape{2, 3, 4, 5};
  CHECK(describe_index(shape, ((1 * 3 + 2) * 4 + 3) * 5 + 4) == "[batch 1, head 2, row 3, col 4]");
  CHECK(describe_index(shape, 0) == "[batch 0, head 0, row 0, col 0]");
}

}  // namespace
}  // namespace tilescope
