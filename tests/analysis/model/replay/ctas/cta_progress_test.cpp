// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/replay/ctas/cta_progress.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "common/statistics.hpp"
#include "gpu/registry/kernel_registry.hpp"
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

/// What records of `profile --cta-progress` say of one rate, by pass.
struct Seen {
  using Pass = std::tuple<std::string, std::string, std::int64_t, ElementType>;
  std::map<Pass, std::vector<double>> passes;

  /// The median over passes of each one's.
  doctest::Approx typical() const {
    std::vector<double> of_passes;
    for (const auto& [pass, values] : passes) of_passes.push_back(median_of(values));
    return doctest::Approx(median_of(of_passes)).epsilon(0.05).scale(0);  // two digits
  }
};

TEST_CASE("the drift of CTAs on a unit of the H200 is the median of the passes in the committed records") {
  namespace fs = std::filesystem;
  struct SeenRates {
    Seen younger, alone, step_cv, tpc_cv, clock_cv;
  };
  std::map<MathUnit, SeenRates> units;
  for (const fs::directory_entry& file : fs::directory_iterator(TILESCOPE_SOURCE_DIR "/reports/data")) {
    const std::string name = file.path().filename();
    const bool of_progress =
        name.starts_with("paces-h200") || name.starts_with("tpcs-h200") || name.starts_with("clocks-h200");
    if (!of_progress) continue;
    for (const RunEntry& run : read_run_record(file.path()).runs) {
      SeenRates& seen = units[find_kernel(run.kernel).math_unit];  // older than the unit in records
      for (const PassRecord& record : run.passes) {
        const Seen::Pass pass{run.kernel, record.name, run.problem.head_dim, run.problem.dtype};
        const ProgressRates& rates = record.progress->rates;
        const bool shared = record.progress->step_cycles > 0 && record.progress->ctas_per_sm > 1;
        if (shared) seen.younger.passes[pass].push_back(rates.younger_rate);
        if (shared && rates.alone_rate != 1) seen.alone.passes[pass].push_back(rates.alone_rate);
        if (rates.step_cv > 0) seen.step_cv.passes[pass].push_back(rates.step_cv);
        // TPCs of the algorithm that keeps S in memory wait for DRAM, and differ as their clocks do.
        if (rates.tpc_cv > 0 && run.algorithm != Algorithm::standard)
          seen.tpc_cv.passes[pass].push_back(rates.tpc_cv);
        // Launches of the other records came one after the other, at the power limit.
        if (name.starts_with("clocks-h200")) seen.clock_cv.passes[pass].push_back(rates.clock_cv);
      }
    }
  }
  const Machine machine = load_machine("h200");
  CHECK(machine.cta_progress.size() == units.size());
  for (const auto& of_unit : units) {
    const MathUnit unit = of_unit.first;
    const auto& seen = of_unit.second;
    CAPTURE(to_string(unit));
    const ProgressRates rates = machine.progress_on(unit);
    CHECK(rates.clock_cv == seen.clock_cv.typical());
    if (unit == MathUnit::wgmma) continue;  // one CTA an SM, and no clock in the loop
    // On tensor cores it is fitted: a clock in the loop changes it, and only with one can it be seen.
    const bool as_measured = rates.younger_rate == seen.younger.typical();
    CHECK(as_measured == (unit == MathUnit::cuda_cores));
    CHECK(rates.alone_rate == seen.alone.typical());
    CHECK(rates.step_cv == seen.step_cv.typical());
    CHECK(rates.tpc_cv == seen.tpc_cv.typical());
  }
  const double apart = machine.progress_on(MathUnit::wgmma).clock_cv;
  CHECK(machine.progress_on(MathUnit::simd) ==
        ProgressRates{.clock_cv = machine.progress_on(MathUnit::cuda_cores).clock_cv});
  CHECK(machine.progress_on(MathUnit::wgmma) == ProgressRates{.clock_cv = apart});
  CHECK(load_machine("a100-80gb").progress_on(MathUnit::mma_sync) == ProgressRates{});
}

}  // namespace
}  // namespace tilescope
