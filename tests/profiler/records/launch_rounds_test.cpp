// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/launch_rounds.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "common/errors.hpp"

using namespace tilescope;

namespace {

using Run = std::vector<KernelMeasurement>;
using CounterMap = std::map<std::string, double>;

KernelMeasurement launch(const std::string& name, std::int64_t ctas, double bytes) {
  KernelMeasurement kernel;
  kernel.name = name;
  kernel.launch.grid = {ctas, 1, 1};
  kernel.measured["bytes"] = bytes;
  return kernel;
}

/// Two kernels, one of them twice, with other bytes in each round.
Run run_of(int rounds, double bytes) {
  Run run;
  for (int i = 0; i < rounds; ++i) {
    for (const auto& [name, ctas] : {std::pair<const char*, std::int64_t>{"a", 1}, {"a", 2}, {"b", 2}}) {
      run.push_back(launch(name, ctas, bytes + i));
    }
  }
  return run;
}

}  // namespace

TEST_CASE("rounds are found by what comes again, and gathered over all runs") {
  const auto launches = gather_rounds({run_of(3, 100), run_of(1, 50), run_of(2, 200)});
  REQUIRE(launches.size() == 3);
  CHECK(launches[2].first.name == "b");
  for (const LaunchRounds& one : launches) {
    const auto spread = spread_of(one, "bytes", "");
    REQUIRE(spread);
    CHECK(spread->samples == 6);
    CHECK(spread->median == 101.5);  // of 50 100 101 102 200 201
    CHECK(spread->min == 50);
    CHECK(spread->max == 201);
    CHECK(spread->relative() == doctest::Approx(151 / 101.5));
    CHECK(!spread_of(one, "time", "cycles"));
  }
}

TEST_CASE("launches that never come again are one round") {
  const auto launches = gather_rounds({{launch("a", 1, 1), launch("b", 1, 2), launch("a", 1, 3)}});
  CHECK(launches.size() == 3);
  CHECK(gather_rounds({}).empty());
  CHECK(gather_rounds({{}}).empty());
}

TEST_CASE("runs of another command are refused") {
  CHECK_THROWS_AS(gather_rounds({run_of(2, 0), {launch("a", 1, 0)}}), BadInput);
  Run wider = run_of(1, 0);
  wider[1].launch.grid = {3, 1, 1};
  CHECK_THROWS_AS(gather_rounds({run_of(2, 0), wider}), BadInput);
}

TEST_CASE("the median of launches is taken counter by counter and metric by metric") {
  std::vector<KernelMeasurement> launches(3, launch("a", 1, 0));
  const double reads[] = {166, 253, 238}, writes[] = {30, 10, 20};
  for (std::size_t i = 0; i < launches.size(); ++i) {
    launches[i].counters = {{"reads.sum", reads[i]}, {"writes.sum", writes[i]}};
    launches[i].measured = {{"bytes", reads[i] + writes[i]}};
  }
  const KernelMeasurement median = median_of_launches(launches);
  CHECK(median.name == "a");
  CHECK(median.launch == launches[0].launch);
  CHECK(median.counters == CounterMap{{"reads.sum", 238}, {"writes.sum", 20}});
  CHECK(median.measured == CounterMap{{"bytes", 258}});  // of 196 263 258
  CHECK(median_of_launches({launches[1]}) == launches[1]);
  launches.pop_back();
  CHECK(median_of_launches(launches).counters.at("reads.sum") == 209.5);
}

TEST_CASE("a ratio that a launch could not form does not hide those of the others") {
  std::vector<KernelMeasurement> launches = {launch("a", 1, std::nan("")), launch("a", 1, 7),
                                             launch("a", 1, 9)};
  CHECK(median_of_launches(launches).measured.at("bytes") == 8);
  launches.resize(1);
  CHECK(std::isnan(median_of_launches(launches).measured.at("bytes")));
}
