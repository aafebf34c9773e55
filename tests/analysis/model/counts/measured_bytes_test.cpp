// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/measured_bytes.hpp"

#include <doctest/doctest.h>

#include <cmath>

namespace tilescope {
namespace {

/// A launch that read so much from DRAM.
KernelMeasurement launch(double dram_read_bytes) {
  KernelMeasurement kernel;
  kernel.name = "dkdvdq";
  kernel.measured = {{"sm_l2_read_bytes", 1000}, {"dram_read_bytes", dram_read_bytes}};
  return kernel;
}

TEST_CASE("of several launches the median is kept, and how far DRAM reads ranged") {
  const MeasuredBytes three = measured_bytes({launch(253e6), launch(166e6), launch(238e6)});
  CHECK(three.dram_read_bytes == 238'000'000);
  CHECK(three.dram_read_range == std::array<std::int64_t, 2>{166'000'000, 253'000'000});
  CHECK(three.sm_l2_read_bytes == 1000);
  CHECK(measured_bytes({launch(100), launch(300)}).dram_read_bytes == 200);
}

TEST_CASE("one launch has no range, and what was not measured is absent") {
  const MeasuredBytes one = measured_bytes({launch(166e6)});
  CHECK(one == MeasuredBytes{1000, std::nullopt, 166'000'000, std::nullopt});
  KernelMeasurement stores;
  stores.measured = {{"store_bytes", 5}};
  CHECK(measured_bytes({stores, stores}) == MeasuredBytes{});
}

TEST_CASE("fetched code is kept, and what is no number is not") {
  KernelMeasurement kernel = launch(std::nan(""));
  kernel.measured["instruction_fetch_bytes"] = 64;
  const MeasuredBytes bytes = measured_bytes({kernel, kernel});
  CHECK(bytes.instruction_fetch_bytes == 64);
  CHECK_FALSE(bytes.dram_read_bytes);
  CHECK_FALSE(bytes.dram_read_range);
}

TEST_CASE("a launch that read a hundredth less than it must judges no model, unless its L2 was warm") {
  RunEntry run;
  PassRecord pass;
  pass.closed_form = ClosedFormBytes{5000, 0, 1000, 0};
  pass.measured = measured_bytes({launch(991), launch(1200)});
  CHECK_FALSE(too_few_reads(run, pass));
  pass.measured = measured_bytes({launch(989), launch(1200), launch(1200)});
  REQUIRE(too_few_reads(run, pass));
  CHECK(too_few_reads(run, pass)->find("read 989 B of the 1 kB that it must") != std::string::npos);
  pass.measured = measured_bytes({launch(989)});
  CHECK(too_few_reads(run, pass));
  run.l2 = "warm";
  CHECK_FALSE(too_few_reads(run, pass));
}

}  // namespace
}  // namespace tilescope
