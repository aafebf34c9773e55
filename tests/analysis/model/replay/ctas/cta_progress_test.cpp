// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/ctas/cta_progress.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "common/statistics.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

/// Notes of a CTA that takes `step` for each of `steps` steps.
CtaStepTimes even_steps(int sm, std::uint32_t from, std::uint32_t step, int steps) {
  CtaStepTimes cta{.sm = sm, .begun = {}};
  for (int i = 0; i <= steps; ++i) cta.begun.push_back(from + static_cast<std::uint32_t>(i) * step);
  return cta;
}

TEST_CASE("progress rates are told apart by age and by company") {
  StepTimes times;
  for (int sm = 0; sm < 4; ++sm) times.ctas.push_back(even_steps(sm, 1000, 1000, 100));
  for (int sm = 0; sm < 4; ++sm) times.ctas.push_back(even_steps(sm, 1000, 1250, 80));
  // Alone, long after the others.
  times.ctas.push_back(even_steps(2, 500000, 500, 100));
  const std::optional<MeasuredProgress> measured = measured_progress(times, 2);
  REQUIRE(measured);
  CHECK(measured->ctas_per_sm == 2);
  CHECK(measured->step_cycles == doctest::Approx(1000.0));
  CHECK(measured->rates.younger_rate == doctest::Approx(0.8));
  CHECK(measured->rates.alone_rate == doctest::Approx(2.0));
  CHECK(measured->rates.step_cv == doctest::Approx(0.0));
}

TEST_CASE("a CTA that may be on the SM before its first note and after its last leaves none alone") {
  StepTimes times;
  times.ctas.push_back(even_steps(0, 1000, 1000, 100));
  times.ctas.push_back(even_steps(0, 1000, 1000, 20));  // its last step, and what follows it, are not noted
  const std::optional<MeasuredProgress> measured = measured_progress(times, 2);
  REQUIRE(measured);
  CHECK(measured->rates.younger_rate == doctest::Approx(1.0));
  CHECK(measured->rates.alone_rate == doctest::Approx(1.0));
  times.ctas[0] = even_steps(0, 1000, 1000, 19);  // never alone: nothing is known of that
  CHECK(measured_progress(times, 2)->rates.alone_rate == 1.0);
}

TEST_CASE("a CTA may be on its SM for nearly two more steps after its last note") {
  StepTimes times;
  times.ctas.push_back(even_steps(0, 1000, 1000, 21));  // notes up to 22000
  std::vector<std::uint32_t>& begun = times.ctas[0].begun;
  begun.push_back(22500);  // a fast step, in which the other may still run
  for (int i = 1; i <= 20; ++i) begun.push_back(22500 + 1000 * static_cast<std::uint32_t>(i));
  times.ctas.push_back(even_steps(0, 1000, 1000, 20));  // notes up to 21000
  const std::optional<MeasuredProgress> measured = measured_progress(times, 2);
  REQUIRE(measured);
  CHECK(measured->rates.alone_rate == doctest::Approx(1.0));
}

TEST_CASE("the clock may wrap, and several steps may lie between notes") {
  StepTimes times{.every = 4, .ctas = {}};
  for (int sm = 0; sm < 3; ++sm) {
    times.ctas.push_back(
        even_steps(sm, 0xFFFFFFFFu - 20000u, 4000u + 40u * static_cast<std::uint32_t>(sm), 50));
  }
  const std::optional<MeasuredProgress> measured = measured_progress(times, 1);
  REQUIRE(measured);
  CHECK(measured->step_cycles == doctest::Approx(1010.0).epsilon(1e-3));
}

TEST_CASE("steps that vary by themselves, noted every few") {
  constexpr int kEvery = 16;
  constexpr double kSpread = 0.02;
  std::mt19937 random(3);
  std::normal_distribution<double> step(1000, 1000 * kSpread);
  StepTimes times{.every = kEvery, .ctas = {}};
  for (int sm = 0; sm < 20; ++sm) {
    double now = 1000;
    CtaStepTimes& cta = times.ctas.emplace_back(CtaStepTimes{.sm = sm, .begun = {}});
    for (int i = 0; i < 60 * kEvery; ++i) {
      if (i % kEvery == 0) cta.begun.push_back(static_cast<std::uint32_t>(now));
      now += step(random);
    }
  }
  const std::optional<MeasuredProgress> measured = measured_progress(times, 1);
  REQUIRE(measured);
  CHECK(measured->rates.step_cv == doctest::Approx(kSpread).epsilon(0.1));
}

TEST_CASE("the rates of TPCs differ by what their two SMs have in common") {
  std::map<int, double> cycles;
  for (int tpc = 0; tpc < 60; ++tpc) {
    const double of_tpc = tpc % 3 == 2 ? 1.003 : 1.0;      // a third of them lag
    const double by_itself = tpc % 2 == 0 ? 0.01 : -0.01;  // as noise does
    cycles[2 * tpc] = 1e7 * (of_tpc + by_itself);
    cycles[2 * tpc + 1] = 1e7 * of_tpc;
  }
  CHECK(measured_tpc_cv(cycles) == doctest::Approx(0.003 * std::sqrt(2.0) / 3).epsilon(0.05));
  for (auto& [sm, of_sm] : cycles) of_sm = 1e7 + (sm % 2 == 0 ? 1e4 : -1e4);
  CHECK(measured_tpc_cv(cycles) == 0);
  CHECK(measured_tpc_cv({{1, 100}, {2, 300}}) == 0);  // not of one TPC
  CHECK(measured_tpc_cv({}) == 0);
}

TEST_CASE("no rates where no SM is ever full") {
  StepTimes times;
  times.ctas.push_back(even_steps(0, 1000, 1000, 100));
  times.ctas.push_back(even_steps(1, 1000, 1000, 100));
  CHECK_FALSE(measured_progress(times, 2));
  CHECK_FALSE(measured_progress({}, 1));
}

TEST_CASE("a machine knows the progress of passes that were measured, by the nearest head dimension") {
  using enum ElementType;
  Machine machine = load_machine("h200");
  machine.cta_progress = {{{"gpu:a", "forward", 64, fp16, {0.9, 1.5}},
                           {"gpu:a", "forward", 128, fp16, {0.8, 1.6, 0.02}},
                           {"gpu:a", "forward", 64, fp32, {1, 1.7}}},
                          "",
                          ""};
  const auto rates = [&machine](const char* kernel, const char* pass, std::int64_t head_dim,
                                ElementType dtype) {
    return machine.progress_of(kernel, pass, {.head_dim = head_dim, .dtype = dtype});
  };
  CHECK(rates("gpu:a", "forward", 72, fp16) == ProgressRates{0.9, 1.5});
  CHECK(rates("gpu:a", "forward", 256, bf16) == ProgressRates{0.8, 1.6, 0.02});
  CHECK(rates("gpu:a", "forward", 256, fp32) == ProgressRates{1, 1.7});
  const ProgressRates unknown{.clock_cv = machine.clock_cv->value};
  CHECK(unknown.clock_cv > 0);
  CHECK(rates("gpu:a", "forward", 64, fp8e4m3) == unknown);
  CHECK(rates("gpu:a", "dq", 64, fp16) == unknown);
  CHECK(rates("gpu:b", "forward", 64, fp16) == unknown);
  machine.cta_progress.reset();
  CHECK(rates("gpu:a", "forward", 64, fp16) == unknown);
  machine.clock_cv.reset();
  CHECK(rates("gpu:a", "forward", 64, fp16) == ProgressRates{});
}

/// What records of `profile --cta-progress` say of a pass.
struct Observed {
  std::vector<double> younger_rates, alone_rates, step_cvs, tpc_cvs;
  std::map<std::int64_t, std::vector<double>> clock_cvs;  // by sequence length, 0 where there are two

  /// Of the longest lengths, from half of the longest on.
  double clock_cv() const {
    std::vector<double> of_long;
    for (const auto& [length, spreads] : clock_cvs) {
      if (2 * length >= clock_cvs.rbegin()->first) {
        of_long.insert(of_long.end(), spreads.begin(), spreads.end());
      }
    }
    return median_of(of_long);
  }
};

TEST_CASE("the drift of CTAs on the H200 is that of the committed records") {
  namespace fs = std::filesystem;
  using Pass = std::tuple<std::string, std::string, std::int64_t, ElementType>;
  std::map<Pass, Observed> observed;
  for (const fs::directory_entry& file : fs::directory_iterator(TILESCOPE_SOURCE_DIR "/reports/data")) {
    const std::string name = file.path().filename();
    const bool of_progress =
        name.starts_with("paces-h200") || name.starts_with("tpcs-h200") || name.starts_with("clocks-h200");
    if (!of_progress) continue;
    for (const RunEntry& run : read_run_record(file.path()).runs) {
      const AttentionProblem& p = run.problem;
      for (const PassRecord& pass : run.passes) {
        Observed& seen = observed[{run.kernel, pass.name, p.head_dim, p.dtype}];
        const ProgressRates& rates = pass.progress->rates;
        const bool shared = pass.progress->step_cycles > 0 && pass.progress->ctas_per_sm > 1;
        if (shared) seen.younger_rates.push_back(rates.younger_rate);
        if (shared && rates.alone_rate != 1) seen.alone_rates.push_back(rates.alone_rate);
        if (rates.step_cv > 0) seen.step_cvs.push_back(rates.step_cv);
        // The TPCs of gpu:standard wait for DRAM, and differ as their clocks do.
        if (rates.tpc_cv > 0 && run.kernel != "gpu:standard") seen.tpc_cvs.push_back(rates.tpc_cv);
        if (rates.clock_cv > 0) {
          seen.clock_cvs[p.seqlen_q == p.seqlen_k ? p.seqlen_q : 0].push_back(rates.clock_cv);
        }
      }
    }
  }
  constexpr double kTwoDigits = 0.06;
  constexpr double kMeansAndMedians = 0.035;  // of what lengths differ by
  // Set to DRAM reads of kernels without a clock in their loop, which the measured ones have (the machine
  // file's source says so). Elsewhere the rate is the measured one.
  const std::set<Pass> fitted = {{"gpu:flash2-mma", "forward", 64, ElementType::fp16},
                                 {"gpu:flash2-mma", "forward", 128, ElementType::fp16},
                                 {"gpu:flash2-mma", "dq", 64, ElementType::fp16},
                                 {"gpu:flash2-mma", "dq", 128, ElementType::fp16},
                                 {"gpu:split-k", "forward", 64, ElementType::fp16},
                                 {"gpu:flash2-simt", "forward", 128, ElementType::fp32}};
  for (const char* name : {"h200", "h200-measured"}) {
    const Machine machine = load_machine(name);
    CHECK(machine.cta_progress->value.size() == observed.size());
    for (const PassProgress& entry : machine.cta_progress->value) {
      CAPTURE(entry.kernel);
      CAPTURE(entry.pass);
      CAPTURE(entry.head_dim);
      const auto found = observed.find({entry.kernel, entry.pass, entry.head_dim, entry.dtype});
      REQUIRE(found != observed.end());
      const Observed& seen = found->second;
      const bool as_measured = seen.younger_rates.empty() ||
                               std::abs(entry.rates.younger_rate - median_of(seen.younger_rates)) < 0.005;
      CHECK(as_measured == !fitted.contains(found->first));
      if (!seen.alone_rates.empty()) {
        CHECK(entry.rates.alone_rate ==
              doctest::Approx(median_of(seen.alone_rates)).epsilon(kMeansAndMedians));
      } else if (seen.younger_rates.empty()) {
        CHECK(entry.rates.alone_rate == 1);  // nobody could look: one CTA an SM, or no clock in the loop
      }
      CHECK(entry.rates.step_cv == doctest::Approx(median_of(seen.step_cvs)).epsilon(kTwoDigits));
      CHECK(entry.rates.clock_cv == doctest::Approx(seen.clock_cv()).epsilon(kTwoDigits));
      const double tpc_cv = seen.tpc_cvs.empty() ? 0 : median_of(seen.tpc_cvs);
      CHECK(entry.rates.tpc_cv == doctest::Approx(tpc_cv).epsilon(kTwoDigits));
    }
  }
}

}  // namespace
}  // namespace tilescope
