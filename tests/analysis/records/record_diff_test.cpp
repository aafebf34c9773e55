// SPDX-License-Identifier: Apache-2.0
// Two records side by side: what counts as moved, as a regression, as new and as gone.
#include "analysis/records/compare/record_diff.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cli/diff_records.hpp"

namespace tilescope {
namespace {

using testing::record_of;
using testing::run_of;

const MetricChange& change_of(const RecordDiff& diff, std::string_view name, std::string_view where) {
  for (const MetricChange& change : diff.common.at(0).changes) {
    if (change.metric->name() == name && change.where == where) return change;
  }
  throw std::runtime_error("no such change");
}

/// Regressions when one value of a run is replaced.
template <typename Edit>
int regressions_after(Edit edit, const std::vector<NamedBudget>& budgets = {}) {
  const RunRecord base = record_of({run_of("gpu:a")});
  RunRecord now = base;
  edit(now.runs[0]);
  return diff_records(base, now, budgets).regressions();
}

}  // namespace

TEST_CASE("a record against itself has moved nowhere") {
  const RunRecord record = record_of({run_of("gpu:a"), run_of("gpu:b")});
  const RecordDiff diff = diff_records(record, record, {});
  CHECK(diff.common.size() == 2);
  CHECK(diff.only_base.empty());
  CHECK(diff.only_now.empty());
  CHECK(diff.regressions() == 0);
  for (const RunChange& run : diff.common) {
    CHECK(run.changes.size() == metric_values(*run.base).size());
    for (const MetricChange& change : run.changes) CHECK_FALSE(change.moved());
  }
}

TEST_CASE("values are sums over the passes of a direction") {
  RunRecord base = record_of({run_of("gpu:a")});
  RunRecord now = base;
  now.runs[0].passes[2].simulated->dram_read_bytes += 5;  // a backward pass
  const RecordDiff diff = diff_records(base, now, {});
  const MetricChange& change = change_of(diff, "simulated.dram_read_bytes", "backward");
  CHECK(change.base == 2 * testing::kBytes);
  CHECK(change.now == 2 * testing::kBytes + 5);
  CHECK(change.regressed);
  CHECK_FALSE(change_of(diff, "simulated.dram_read_bytes", "forward").moved());
}

TEST_CASE("a sum that one of its passes has lost is gone, not smaller") {
  const RunRecord base = record_of({run_of("gpu:a")});
  RunRecord now = base;
  now.runs[0].passes[1].simulated.reset();  // of two backward passes
  const RecordDiff diff = diff_records(base, now, {});
  CHECK(diff.lost_anything());
  CHECK_FALSE(diff.passes(false));
  for (const MetricChange& change : diff.common.at(0).changes) {
    CHECK_FALSE((change.metric->account == "simulated" && change.where == "backward"));
  }
}

TEST_CASE("of two runs that differ in their tiles alone, none is taken for a third") {
  RunRecord base = record_of({run_of("gpu:a"), run_of("gpu:a")}), now = record_of({run_of("gpu:a")});
  base.runs[0].passes[0].tile = {64, 64};
  base.runs[1].passes[0].tile = {128, 64};
  now.runs[0].passes[0].tile = {128, 128};
  const RecordDiff diff = diff_records(base, now, {});
  CHECK(diff.common.empty());
  CHECK(diff.only_base.size() == 2);
  CHECK(diff.only_now.size() == 1);
}

TEST_CASE("default budgets: formulas and errors may not grow, counters a little, times more") {
  CHECK(regressions_after([](RunEntry& run) { run.passes[0].closed_form->sm_l2_read_bytes += 1; }) == 1);
  CHECK(regressions_after([](RunEntry& run) { run.passes[0].closed_form->sm_l2_read_bytes -= 1; }) == 0);
  CHECK(regressions_after([](RunEntry& run) { *run.passes[0].measured->sm_l2_read_bytes += 4; }) == 0);
  CHECK(regressions_after([](RunEntry& run) { *run.passes[0].measured->sm_l2_read_bytes += 6; }) == 1);
  CHECK(regressions_after([](RunEntry& run) { *run.passes[0].measured->dram_read_bytes += 49; }) == 0);
  CHECK(regressions_after([](RunEntry& run) { *run.passes[0].measured->dram_read_bytes += 51; }) == 1);
  CHECK(regressions_after([](RunEntry& run) { run.passes[0].time->median_s *= 1.09; }) == 0);
  CHECK(regressions_after([](RunEntry& run) { run.passes[0].time->median_s *= 1.11; }) == 1);
  CHECK(regressions_after([](RunEntry& run) { run.error["o"].max_abs *= 1.001; }) == 1);
}

TEST_CASE("budgets by name, key and account, the most exact counts") {
  const auto grow = [](RunEntry& run) { run.passes[0].simulated->dram_read_bytes += 20; };  // 2 %
  CHECK(regressions_after(grow) == 1);
  CHECK(regressions_after(grow, {parse_budget("simulated=2%")}) == 0);
  CHECK(regressions_after(grow, {parse_budget("dram_read_bytes=1.9%")}) == 1);
  CHECK(regressions_after(grow, {parse_budget("dram_read_bytes=20")}) == 0);
  CHECK(regressions_after(grow, {parse_budget("dram_read_bytes=19")}) == 1);
  CHECK(regressions_after(grow,
                          {parse_budget("simulated.dram_read_bytes=2%"), parse_budget("simulated=0%")}) == 0);
  CHECK(regressions_after(grow, {parse_budget("dram_read_bytes=0%"), parse_budget("dram_read_bytes=3%")}) ==
        0);
  CHECK(regressions_after(grow, {parse_budget("time=50%")}) == 1);
}

TEST_CASE("what is no longer finite is a regression whatever the budget") {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<NamedBudget> loose = {parse_budget("error=1000000%"), parse_budget("max_abs=1e300")};
  CHECK(regressions_after([&](RunEntry& run) { run.error["o"].max_abs = nan; }, loose) == 1);
  CHECK(regressions_after([&](RunEntry& run) { run.error["o"].max_abs = infinity; }, loose) == 1);
  RunRecord bad = record_of({run_of("gpu:a")});
  bad.runs[0].error["o"].max_abs = nan;
  CHECK(diff_records(bad, bad, {}).regressions() == 0);
  CHECK(diff_records(bad, record_of({run_of("gpu:a")}), {}).regressions() == 0);
}

TEST_CASE("runs are matched by problem and kernel, and by tile where that is not enough") {
  const RunEntry a = run_of("gpu:a"), b = run_of("gpu:b");
  RunEntry longer = a, retiled = a, wide = a;
  longer.problem.seqlen_k += 1;
  for (PassRecord& pass : retiled.passes) pass.tile = {32, 32};
  for (PassRecord& pass : wide.passes) pass.tile = {256, 64};

  SUBCASE("new and gone") {
    const RunRecord base = record_of({a, longer}), now = record_of({b, a});
    const RecordDiff diff = diff_records(base, now, {});
    CHECK(diff.common.size() == 1);
    CHECK(diff.only_base == std::vector<const RunEntry*>{&base.runs[1]});
    CHECK(diff.only_now == std::vector<const RunEntry*>{&now.runs[0]});
  }
  SUBCASE("another tile is the same run when there is only one") {
    const RunRecord base = record_of({a}), now = record_of({retiled});
    CHECK(diff_records(base, now, {}).common.size() == 1);
  }
  SUBCASE("a run with pages at random places is another run") {
    RunEntry elsewhere = a;
    elsewhere.pages = PagePlacement::random;
    const RunRecord base = record_of({a}), now = record_of({elsewhere});
    CHECK(diff_records(base, now, {}).common.empty());
    CHECK(diff_records(now, now, {}).common.size() == 1);
  }
  SUBCASE("a sweep over tiles is matched tile by tile, in any order") {
    const RunRecord base = record_of({a, retiled}), now = record_of({wide, retiled, a});
    const RecordDiff diff = diff_records(base, now, {});
    CHECK(diff.common.size() == 2);
    CHECK(diff.common[0].now == &now.runs[2]);
    CHECK(diff.only_now == std::vector<const RunEntry*>{&now.runs[0]});
  }
}

TEST_CASE("values that only the base has are named, and other caches are not compared") {
  const RunRecord base = record_of({run_of("gpu:a")});
  RunRecord now = base;
  now.runs[0].passes[0].measured->dram_read_bytes.reset();
  for (PassRecord& pass : now.runs[0].passes) pass.simulated->machine = "another";
  const RecordDiff diff = diff_records(base, now, {});
  const std::vector<GoneMetric>& gone = diff.common.at(0).gone;
  const auto reasons = [&gone](const std::string& reason) {
    return std::count_if(gone.begin(), gone.end(),
                         [&](const GoneMetric& metric) { return metric.reason == reason; });
  };
  CHECK(reasons("simulated on h200, now on another") == 8);
  CHECK(reasons("no longer there") == 1);
  CHECK(gone.size() == 9);
  CHECK(gone.front().name() == "simulated.sm_l2_read_bytes forward");
  CHECK(gone.back().name() == "measured.dram_read_bytes forward");
  CHECK(diff.lost_anything());
  CHECK(diff.regressions() == 0);

  RunRecord smaller = base;
  smaller.runs[0].passes[0].simulated->l2_bytes /= 2;
  CHECK(diff_records(base, smaller, {}).common.at(0).gone.at(0).reason ==
        "simulated with an L2 of 1048576 B, now of 524288 B");
}

TEST_CASE("a budget that nothing was held to is refused, with the reason") {
  const auto refusal = [](const RunRecord& base, const RunRecord& now, const char* budget) -> std::string {
    const std::vector<NamedBudget> budgets = {parse_budget(budget)};
    try {
      require_compared(diff_records(base, now, budgets), budgets);
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  const RunRecord whole = record_of({run_of("gpu:a")});
  CHECK(refusal(whole, whole, "time=10%") == "");

  RunRecord other = whole, timeless = whole;
  for (PassRecord& pass : other.runs[0].passes) pass.simulated->machine = "a100-80gb";
  for (PassRecord& pass : timeless.runs[0].passes) pass.time.reset();
  const std::string machines = refusal(whole, other, "simulated.dram_read_bytes=5%");
  CHECK(contains(machines, "simulated.dram_read_bytes=5%"));
  CHECK(contains(machines, "zero times: simulated on h200, now on a100-80gb"));
  CHECK(refusal(whole, other, "dram_read_bytes=5%") == "");  // the measured ones were compared
  CHECK(contains(refusal(whole, timeless, "time=10%"), "no longer there"));
  CHECK(contains(refusal(timeless, whole, "time=10%"), "BASE does not have it"));
  CHECK(contains(refusal(timeless, timeless, "time=10%"), "neither record has it"));
  RunRecord two = timeless;
  two.runs.push_back(run_of("gpu:b"));
  CHECK(contains(refusal(two, timeless, "time=10%"), "that have it are gone"));
}

TEST_CASE("bad budgets are refused by name") {
  CHECK_THROWS_WITH_AS(parse_budget("dram_read_byte=5%"), doctest::Contains("did you mean dram_read_bytes"),
                       BadInput);
  for (const char* text :
       {"time", "time=", "time=%", "time=-1%", "time=5 %", "time=nan", "time=fast", "=5%", ""}) {
    CAPTURE(text);
    CHECK_THROWS_AS(parse_budget(text), BadInput);
  }
}

}  // namespace tilescope
