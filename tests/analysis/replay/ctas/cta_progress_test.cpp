// SPDX-License-Identifier: Apache-2.0
#include "analysis/replay/ctas/cta_progress.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "analysis/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "profiler/timing/timed_samples.hpp"  // median_of
#include "tests/paths.hpp"

namespace tilescope {
namespace {

/// Notes of a CTA that takes `step` for each of `steps` steps.
CtaStepTimes even_steps(int sm, std::uint32_t from, std::uint32_t step, int steps) {
  CtaStepTimes cta{.sm = sm, .begun = {}};
  for (int i = 0; i <= steps; ++i) cta.begun.push_back(from + static_cast<std::uint32_t>(i) * step);
  return cta;
}

TEST_CASE("paces are told apart by age and by company") {
  StepTimes times;
  for (int sm = 0; sm < 4; ++sm) times.ctas.push_back(even_steps(sm, 1000, 1000, 100));
  for (int sm = 0; sm < 4; ++sm) times.ctas.push_back(even_steps(sm, 1000, 1250, 80));
  // Alone, long after the others.
  times.ctas.push_back(even_steps(2, 500000, 500, 100));
  const std::optional<MeasuredPaces> measured = measured_paces(times, 2);
  REQUIRE(measured);
  CHECK(measured->ctas_per_sm == 2);
  CHECK(measured->step_cycles == doctest::Approx(1000.0));
  CHECK(measured->paces.younger == doctest::Approx(0.8));
  CHECK(measured->paces.alone == doctest::Approx(2.0));
  CHECK(measured->paces.step_spread == doctest::Approx(0.0));
}

TEST_CASE("a CTA that may be on the SM before its first note and after its last leaves none alone") {
  StepTimes times;
  times.ctas.push_back(even_steps(0, 1000, 1000, 100));
  times.ctas.push_back(even_steps(0, 1000, 1000, 20));  // its last step, and what follows it, are not noted
  const std::optional<MeasuredPaces> measured = measured_paces(times, 2);
  REQUIRE(measured);
  CHECK(measured->paces.younger == doctest::Approx(1.0));
  CHECK(measured->paces.alone == doctest::Approx(1.0));
  times.ctas[0] = even_steps(0, 1000, 1000, 19);  // never alone: nothing is known of that
  CHECK(measured_paces(times, 2)->paces.alone == 1.0);
}

TEST_CASE("the clock may wrap, and several steps may lie between notes") {
  StepTimes times{.every = 4, .ctas = {}};
  for (int sm = 0; sm < 3; ++sm) {
    times.ctas.push_back(
        even_steps(sm, 0xFFFFFFFFu - 20000u, 4000u + 40u * static_cast<std::uint32_t>(sm), 50));
  }
  const std::optional<MeasuredPaces> measured = measured_paces(times, 1);
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
  const std::optional<MeasuredPaces> measured = measured_paces(times, 1);
  REQUIRE(measured);
  CHECK(measured->paces.step_spread == doctest::Approx(kSpread).epsilon(0.1));
}

TEST_CASE("the paces of TPCs differ by what their two SMs have in common") {
  std::map<int, double> cycles;
  for (int tpc = 0; tpc < 60; ++tpc) {
    const double of_tpc = tpc % 3 == 2 ? 1.003 : 1.0;      // a third of them lag
    const double by_itself = tpc % 2 == 0 ? 0.01 : -0.01;  // as noise does
    cycles[2 * tpc] = 1e7 * (of_tpc + by_itself);
    cycles[2 * tpc + 1] = 1e7 * of_tpc;
  }
  CHECK(measured_tpc_spread(cycles) == doctest::Approx(0.003 * std::sqrt(2.0) / 3).epsilon(0.05));
  for (auto& [sm, of_sm] : cycles) of_sm = 1e7 + (sm % 2 == 0 ? 1e4 : -1e4);
  CHECK(measured_tpc_spread(cycles) == 0);
  CHECK(measured_tpc_spread({{1, 100}, {2, 300}}) == 0);  // not of one TPC
  CHECK(measured_tpc_spread({}) == 0);
}

TEST_CASE("no paces where no SM is ever full") {
  StepTimes times;
  times.ctas.push_back(even_steps(0, 1000, 1000, 100));
  times.ctas.push_back(even_steps(1, 1000, 1000, 100));
  CHECK_FALSE(measured_paces(times, 2));
  CHECK_FALSE(measured_paces({}, 1));
}

TEST_CASE("a machine knows the paces of passes that were measured, by the nearest head dimension") {
  using enum ElementType;
  Machine machine = load_machine("h200");
  machine.cta_paces = {{{"gpu:a", "forward", 64, fp16, {0.9, 1.5}},
                        {"gpu:a", "forward", 128, fp16, {0.8, 1.6, 0.02}},
                        {"gpu:a", "forward", 64, fp32, {1, 1.7}}},
                       "",
                       ""};
  const auto paces = [&machine](const char* kernel, const char* pass, std::int64_t head_dim,
                                ElementType dtype) {
    return machine.paces_of(kernel, pass, {.head_dim = head_dim, .dtype = dtype});
  };
  CHECK(paces("gpu:a", "forward", 72, fp16) == CtaPaces{0.9, 1.5});
  CHECK(paces("gpu:a", "forward", 256, bf16) == CtaPaces{0.8, 1.6, 0.02});
  CHECK(paces("gpu:a", "forward", 256, fp32) == CtaPaces{1, 1.7});
  const CtaPaces unknown{.clock_spread = machine.clock_spread->value};
  CHECK(unknown.clock_spread > 0);
  CHECK(paces("gpu:a", "forward", 64, fp8e4m3) == unknown);
  CHECK(paces("gpu:a", "dq", 64, fp16) == unknown);
  CHECK(paces("gpu:b", "forward", 64, fp16) == unknown);
  machine.cta_paces.reset();
  CHECK(paces("gpu:a", "forward", 64, fp16) == unknown);
  machine.clock_spread.reset();
  CHECK(paces("gpu:a", "forward", 64, fp16) == CtaPaces{});
}

/// What records of `profile --paces` say of a pass.
struct Observed {
  std::vector<double> step_spreads, tpc_spreads;
  std::map<std::int64_t, std::vector<double>> clock_spreads;  // by sequence length, 0 where there are two

  /// Of the longest lengths, from half of the longest on.
  double clock_spread() const {
    std::vector<double> of_long;
    for (const auto& [length, spreads] : clock_spreads) {
      if (2 * length >= clock_spreads.rbegin()->first) {
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
    const bool of_paces =
        name.starts_with("paces-h200") || name.starts_with("tpcs-h200") || name.starts_with("clocks-h200");
    if (!of_paces) continue;
    for (const RunEntry& run : read_run_record(file.path()).runs) {
      const AttentionProblem& p = run.problem;
      for (const PassRecord& pass : run.passes) {
        Observed& seen = observed[{run.kernel, pass.name, p.head_dim, p.dtype}];
        const CtaPaces& paces = pass.paces->paces;
        if (paces.step_spread > 0) seen.step_spreads.push_back(paces.step_spread);
        // The TPCs of gpu:standard wait for DRAM, and differ as their clocks do.
        if (paces.tpc_spread > 0 && run.kernel != "gpu:standard")
          seen.tpc_spreads.push_back(paces.tpc_spread);
        if (paces.clock_spread > 0) {
          seen.clock_spreads[p.seqlen_q == p.seqlen_k ? p.seqlen_q : 0].push_back(paces.clock_spread);
        }
      }
    }
  }
  constexpr double kTwoDigits = 0.06;
  for (const char* name : {"h200", "h200-measured"}) {
    const Machine machine = load_machine(name);
    CHECK(machine.cta_paces->value.size() == observed.size());
    for (const PassPaces& entry : machine.cta_paces->value) {
      CAPTURE(entry.kernel);
      CAPTURE(entry.pass);
      CAPTURE(entry.head_dim);
      const auto found = observed.find({entry.kernel, entry.pass, entry.head_dim, entry.dtype});
      REQUIRE(found != observed.end());
      const Observed& seen = found->second;
      CHECK(entry.paces.step_spread == doctest::Approx(median_of(seen.step_spreads)).epsilon(kTwoDigits));
      CHECK(entry.paces.clock_spread == doctest::Approx(seen.clock_spread()).epsilon(kTwoDigits));
      const double tpc_spread = seen.tpc_spreads.empty() ? 0 : median_of(seen.tpc_spreads);
      CHECK(entry.paces.tpc_spread == doctest::Approx(tpc_spread).epsilon(kTwoDigits));
    }
  }
}

}  // namespace
}  // namespace tilescope
