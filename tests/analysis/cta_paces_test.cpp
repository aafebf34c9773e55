// SPDX-License-Identifier: Apache-2.0
#include "analysis/cta_paces.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "analysis/machine.hpp"

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

}  // namespace
}  // namespace tilescope
