// SPDX-License-Identifier: Apache-2.0
// Metrics as data: well formed by themselves, and known to every kind of chip that TileScope is made for.
#include "profiler/counters/metric_sets.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/profiler/without_counters.hpp"

using namespace tilescope;
using tilescope::testing::with_catalogue;

namespace {

std::set<std::string_view> names(const std::vector<const Metric*>& metrics) {
  std::set<std::string_view> result;
  for (const Metric* metric : metrics) result.insert(metric->name);
  return result;
}

struct Budget {
  const char* chip;
  int traffic_passes, all_passes;
  std::set<std::string_view> missing;  // of the set `all`
};

// What libcupti 13.0 answers; a change means that a set has become dearer, or that a counter's name is gone.
const Budget kBudgets[] = {
    {"GA100",
     3,
     14,
     {"stall_gmma", "tensor_fp8_ops", "shared_gmma_bytes", "tma_store_bytes", "multicast_read_bytes"}},
    {"GH100", 1, 15, {}},
    {"GB100", 1, 13, {"stall_gmma", "stall_constant_miss", "shared_gmma_bytes"}},
    {"GB202", 2, 16, {"stall_gmma", "stall_constant_miss", "shared_gmma_bytes", "multicast_read_bytes"}},
};

}  // namespace

TEST_CASE("every metric has a name, a unit and a formula, and every set names metrics that exist") {
  std::set<std::string_view> seen;
  for (const Metric& metric : all_metrics()) {
    CAPTURE(metric.name);
    CHECK(seen.insert(metric.name).second);
    CHECK(!metric.unit.empty());
    REQUIRE(!metric.formulas.empty());
    for (const Formula& formula : metric.formulas) {
      REQUIRE(!formula.empty());
      for (const Term& term : formula) CHECK(term.counter.find('.') != std::string_view::npos);
    }
  }
  for (const MetricSet& set : metric_sets()) {
    CAPTURE(set.name);
    CHECK(!seen.count(set.name));  // a request could mean either
    CHECK(!set.metrics.empty());
    for (const std::string_view metric : set.metrics) {
      CAPTURE(metric);
      CHECK(seen.count(metric) == 1);
    }
  }
}

TEST_CASE("formulas are evaluated as they read") {
  const Formula formula{{1, "a.sum"}, {2, "b.sum"}};
  CHECK(to_string(formula) == "a.sum + 2 * b.sum");
  CHECK(to_string(Formula{{1, "a.sum"}, {-1, "b.sum"}, {-2, "c.sum"}}) == "a.sum - b.sum - 2 * c.sum");
  CHECK(evaluate(formula, {{"a.sum", 3}, {"b.sum", 5}}) == 13);
  CHECK(!evaluate(formula, {{"a.sum", 3}}));
}

TEST_CASE("chips have the counters of every set, within the passes that we count on") {
  for (const Budget& budget : kBudgets) {
    CAPTURE(budget.chip);
    with_catalogue(budget.chip, [&](const MetricCatalogue& chip) {
      const MetricChoice traffic = choose_metrics("traffic", chip);
      CHECK(traffic.missing.empty());
      CHECK(chip.passes(traffic.counters) == budget.traffic_passes);
      const MetricChoice all = choose_metrics("all", chip);
      CHECK(names(all.missing) == budget.missing);
      CHECK(chip.passes(all.counters) == budget.all_passes);
    });
  }
}

TEST_CASE("a counter that a chip names otherwise is found under its other name") {
  with_catalogue("GB202", [](const MetricCatalogue& chip) {
    const MetricChoice choice = choose_metrics("dram_read_bytes", chip);
    CHECK(choice.counters == std::vector<std::string>{"dram__bytes_op_read.sum"});
    CHECK(choice.evaluate({{"dram__bytes_op_read.sum", 7}}).at("dram_read_bytes") == 7);
  });
}

TEST_CASE("fetched code is counted in sectors, and in the set that needs several passes anyway") {
  with_catalogue("GH100", [](const MetricCatalogue& chip) {
    const std::string counter = "lts__t_sectors_srcunit_gcc_lookup_miss.sum";
    const MetricChoice causes = choose_metrics("causes", chip), traffic = choose_metrics("traffic", chip);
    CHECK(causes.evaluate({{counter, 3}}).at("instruction_fetch_bytes") == 96);
    CHECK(std::count(traffic.counters.begin(), traffic.counters.end(), counter) == 0);
    std::vector<std::string> both = traffic.counters;
    both.push_back(counter);
    CHECK(chip.passes(both) == 2);
  });
}

TEST_CASE("sets, metrics and counters mix in one request and nothing is collected twice") {
  with_catalogue("GH100", [](const MetricCatalogue& chip) {
    const MetricChoice choice =
        choose_metrics("dram_read_bytes,traffic,dram__bytes_read.sum,sm__inst_executed.sum", chip);
    std::vector<std::string> counters = choice.counters;
    std::sort(counters.begin(), counters.end());
    CHECK(std::adjacent_find(counters.begin(), counters.end()) == counters.end());
    CHECK(choice.counters.front() == "dram__bytes_read.sum");
    CHECK(choice.counters.back() == "sm__inst_executed.sum");
    CHECK(choice.metrics.size() == choose_metrics("traffic", chip).metrics.size());
  });
}

TEST_CASE("parts of a choice fit in one pass each and together are the whole") {
  for (const char* name : {"GA100", "GH100", "GB100"}) {
    CAPTURE(name);
    with_catalogue(name, [&](const MetricCatalogue& chip) {
      const MetricChoice whole = choose_metrics("traffic,tensor,l2_hit_rate,sm__inst_executed.sum", chip);
      std::set<std::string> counters;
      std::multiset<const Metric*> metrics;
      for (const MetricChoice& part : split_by_pass(whole, chip)) {
        CHECK((chip.passes(part.counters) == 1 || part.metrics.size() == 1));
        counters.insert(part.counters.begin(), part.counters.end());
        for (const auto& chosen : part.metrics) metrics.insert(chosen.metric);
      }
      CHECK(counters == std::set<std::string>(whole.counters.begin(), whole.counters.end()));
      CHECK(metrics.size() == whole.metrics.size());
      CHECK(std::set<const Metric*>(metrics.begin(), metrics.end()).size() == metrics.size());
    });
  }
  with_catalogue("GH100", [](const MetricCatalogue& chip) {
    CHECK(split_by_pass(choose_metrics("traffic,l2_hit_sectors", chip), chip).size() == 2);
  });
}

TEST_CASE("an unknown name is refused with every name there is") {
  with_catalogue("GH100", [](const MetricCatalogue& chip) {
    for (const char* name :
         {"trafic", "dram__bytes_raed.sum", "dram__bytes_read", "dram__bytes_read.som", ""}) {
      CAPTURE(name);
      const std::string request = std::string("warp,") + name + ",tensor";
      try {
        choose_metrics(request, chip);
        FAIL("not refused");
      } catch (const UnknownMetric& error) {
        CHECK(error.name() == name);
        CHECK(std::count(error.known().begin(), error.known().end(), "dram__bytes_read.sum") == 1);
      }
    }
    CHECK_THROWS_AS(MetricCatalogue("GX999"), BadInput);
  });
}

TEST_CASE("the catalogue tells what a counter counts") {
  with_catalogue("GH100", [](const MetricCatalogue& chip) {
    CHECK(chip.description("dram__bytes_read.sum").find("DRAM") != std::string::npos);
    CHECK(chip.description("no__such_counter.sum") == "");
    CHECK(chip.passes({}) == 0);
    const std::vector<std::string> chips = MetricCatalogue::chips();
    CHECK(std::count(chips.begin(), chips.end(), "GH100") == 1);
  });
}
