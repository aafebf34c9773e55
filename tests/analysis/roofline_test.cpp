// SPDX-License-Identifier: Apache-2.0
#include "analysis/roofline.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace tilescope {
namespace {

Machine toy() {
  Machine machine;
  machine.dram_bytes_per_second = {100.0, "test", "assumed"};
  machine.l2_bytes_per_second = Fact<double>{400.0, "test", "assumed"};
  machine.peak_flops_per_second["fp16"] = {1000.0, "test", "assumed"};
  return machine;
}

TEST_CASE("the lowest ceiling limits") {
  const Machine machine = toy();
  // 1000 FLOP: 10 bytes across SM<->L2 (100 FLOP/B), 5 across DRAM (200 FLOP/B): the peak of 1000 limits.
  CHECK(roofline(1000, 10, 5, machine, ElementType::fp16).limit == "fp16 peak");
  const Roofline dram = roofline(1000, 500, 400, machine, ElementType::fp16);
  CHECK(dram.limit == "DRAM bandwidth");
  CHECK(dram.attainable_flops_per_second.value() == doctest::Approx(2.5 * 100));
  CHECK(dram.least_seconds(1000).value() == doctest::Approx(4));
  const Roofline l2 = roofline(1000, 4000, 400, machine, ElementType::fp16);
  CHECK(l2.limit == "SM<->L2 bandwidth");
  CHECK(l2.attainable_flops_per_second.value() == doctest::Approx(0.25 * 400));
  REQUIRE(l2.points.size() == 2);
  CHECK(l2.points[0].flops_per_byte == doctest::Approx(0.25));
  CHECK(l2.points[1].flops_per_byte == doctest::Approx(2.5));
}

TEST_CASE("what is unknown limits nothing") {
  Machine machine = toy();
  machine.l2_bytes_per_second.reset();
  CHECK(roofline(1000, 1000000, 5, machine, ElementType::fp16).limit == "fp16 peak");
  CHECK(roofline(1000, std::nullopt, std::nullopt, machine, ElementType::fp16).points.empty());
  const Roofline none = roofline(1000, std::nullopt, std::nullopt, machine, ElementType::fp8e4m3);
  CHECK_FALSE(none.least_seconds(1000).has_value());
  CHECK(none.limit.empty());
  CHECK(std::isinf(roofline(1000, 0, 5, machine, ElementType::fp16).points[0].flops_per_byte));
}

}  // namespace
}  // namespace tilescope
