// SPDX-License-Identifier: Apache-2.0
// Which runs make a sweep, and which are left to the tables.
#include "analysis/report/sweep.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "analysis/report/sections/report_sections.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::sweep_records;

TEST_CASE("sweeps are found, sorted, and leave the other runs to the tables") {
  const std::vector<RunRecord> records = sweep_records();
  const std::vector<RunSummary> runs = summarize(records);
  const std::vector<Sweep> lengths = seqlen_sweeps(runs), tiles = tile_sweeps(runs);
  REQUIRE(lengths.size() == 2);  // forward and backward
  REQUIRE(tiles.size() == 2);
  for (const Sweep& sweep : lengths) {
    REQUIRE(sweep.series.size() == 3);
    CHECK(sweep.series[0].label == "standard");
    for (const SweepSeries& series : sweep.series) {
      REQUIRE(series.points.size() >= 3);
      CHECK(std::is_sorted(series.points.begin(), series.points.end(), [](const auto* a, const auto* b) {
        return a->problem().seqlen_q < b->problem().seqlen_q;
      }));
    }
  }
  const std::vector<const RunSummary*> headlines = headline_runs(runs);
  CHECK(headlines.size() == 4);
  for (const RunSummary* run : headlines) CHECK(run->problem().seqlen_q == 100);
  CHECK(headline_runs(summarize({records[0]})).size() == 6);  // the last point of each series
  const std::vector<const RunSummary*> tabled = tabled_runs(runs);
  CHECK(tabled.size() == runs.size());  // every point of a sweep
}

TEST_CASE("a series that goes on is shown where another ends too") {
  std::vector<RunEntry> entries;
  for (const int seqlen : {50, 100, 150, 200}) {
    entries.push_back(testing::simulated(Algorithm::flash2, seqlen, {24, 24}));
    if (seqlen < 200) entries.push_back(testing::simulated(Algorithm::standard, seqlen, {24, 24}));
  }
  const std::vector<RunRecord> records = {testing::fixed_record(entries)};
  const std::vector<RunSummary> runs = summarize(records);
  int beside = 0, ends = 0;
  for (const RunSummary* run : headline_runs(runs)) {
    beside += run->problem().seqlen_q == 150;
    ends += run->problem().seqlen_q == 200;
  }
  CHECK(beside == 4);  // both kernels, forward and backward
  CHECK(ends == 2);
}

TEST_CASE("machines in a heading are told apart, also where their names have commas") {
  using Names = std::vector<std::string>;
  CHECK(with_machines("Speed", Names{"an A", "a B"}) == "Speed (an A, a B)");
  CHECK(with_machines("Speed", Names{"an A, 40 GB", "a B"}) == "Speed (an A, 40 GB; a B)");
  CHECK(with_machines("Speed", Names{}) == "Speed");
}

TEST_CASE("the exponent of a power is found, through two points or many") {
  using Points = std::vector<std::pair<double, double>>;
  CHECK(growth_exponent(Points{{2, 12}, {4, 48}}) == doctest::Approx(2));
  CHECK(growth_exponent(Points{{1, 5}, {10, 0.5}, {100, 0.05}}) == doctest::Approx(-1));
  CHECK(growth_exponent(Points{{1, 1}, {2, 1}, {4, 1}, {8, 4}}) == doctest::Approx(0.6));  // the ends: 2/3
}

}  // namespace
}  // namespace tilescope
