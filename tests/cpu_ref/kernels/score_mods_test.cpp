// SPDX-License-Identifier: Apache-2.0
// Score modifiers and learned sinks: what must be the same as without them, to the bit where it can be, and
// derivatives against differences.
#include "cpu_ref/schedule/score_mods.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/exact_score.hpp"
#include "cpu_ref/judge/gradient_check.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

using enum TensorName;

std::vector<testing::KernelCase> cases_with_score_mods() {
  std::vector<testing::KernelCase> cases = testing::kernel_cases();
  std::erase_if(cases,
                [](const testing::KernelCase& c) { return !c.kernel->can.backward.has(Feature::softcap); });
  return cases;
}

AttentionProblem two_tiles() {
  return {
      .batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 41, .seqlen_k = 37, .head_dim = 12, .causal = true};
}

/// What a kernel leaves where the numbers of heads are all `number`, or those that inputs begin with.
TensorSet results_of(const testing::KernelCase& c, const AttentionProblem& problem,
                     std::optional<float> number = std::nullopt) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, Direction::backward);
  for (const TensorName name : {alibi_slopes, sink}) {
    if (!number || !tensors.has(name)) continue;
    std::fill_n(tensors[name].floats(), problem.heads, *number);
  }
  testing::run_kernel(c, ProgramOptions::with_tile({16, 16}), Direction::backward, tensors);
  return tensors;
}

void check_same_bits(const TensorSet& a, const TensorSet& b) {
  for (const TensorName name : {out, lse, dq, dk, dv}) {
    CAPTURE(to_string(name));
    REQUIRE(a[name].bytes() == b[name].bytes());
    CHECK(std::memcmp(a[name].data(), b[name].data(), static_cast<std::size_t>(a[name].bytes())) == 0);
  }
}

TEST_CASE("with modifiers, random problems lie within the judge's bound, and do what their programs say") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = 1 + static_cast<int>(seed) % 3;
    const TileShape tile = random.tile_of_slices(slices, 24 / slices);
    AttentionProblem p = random.modified(random.problem(tile));
    p.dtype = kElementTypes[seed % 3];
    if (random.chance(0.25)) p.dropout = 0.25;
    if (random.chance(0.25)) p.softmax_scale = random.chance(0.5) ? -0.3 : 1.5;
    if (random.chance(0.3)) p = random.padded(p);
    if (random.chance(0.3)) p = random.with_value_dim(p);
    CAPTURE(seed);
    CAPTURE(describe(p));
    Reference reference(p, InputKind::normal, Direction::backward);
    for (const testing::KernelCase& c : cases_with_score_mods()) {
      CAPTURE(c.name());
      ProgramOptions options = ProgramOptions::with_tile(tile);
      options.backward = c.backward;
      options.diagonal_slices = c.kernel->smallest_part > 0 ? slices : 1;
      options.set_query_splits(seed % 4 == 1 ? random.between(2, 5) : 1);
      TileObserver observer;
      reference.run(*c.kernel, options, Direction::backward, &observer);
      CHECK(reference.judge(Direction::backward).passed());
      const auto where = first_divergence(reference, *c.kernel, options, Direction::backward, observer);
      if (where) FAIL_CHECK(describe(*where, p));
    }
  }
}

TEST_CASE("a sink of -infinity changes no bit, and has no gradient") {
  AttentionProblem p = two_tiles();
  for (const testing::KernelCase& c : cases_with_score_mods()) {
    CAPTURE(c.name());
    p.score_mods = {};
    const TensorSet plain = results_of(c, p);
    p.score_mods.learned_sink = true;
    const TensorSet none = results_of(c, p, -std::numeric_limits<float>::infinity());
    check_same_bits(plain, none);
    for (std::int64_t head = 0; head < p.heads; ++head) CHECK(none[dsink].get(head) == 0.0f);
    const TensorSet some = results_of(c, p, 0.0f);
    CHECK(std::memcmp(some[lse].data(), plain[lse].data(), static_cast<std::size_t>(plain[lse].bytes())) !=
          0);
  }
}

TEST_CASE("slopes of 0 change no bit") {
  AttentionProblem p = two_tiles();
  for (const testing::KernelCase& c : cases_with_score_mods()) {
    CAPTURE(c.name());
    p.score_mods = {};
    const TensorSet plain = results_of(c, p);
    p.score_mods.alibi = true;
    check_same_bits(plain, results_of(c, p, 0.0f));
  }
}

TEST_CASE("a soft cap far above every score is none, but for the rounding of tanh") {
  AttentionProblem p = two_tiles();
  for (const testing::KernelCase& c : cases_with_score_mods()) {
    CAPTURE(c.name());
    p.score_mods = {};
    Reference plain(p, InputKind::normal, Direction::backward);
    p.score_mods.softcap = 1e5;
    const TensorSet capped = results_of(c, p);
    for (const TensorName name : {out, lse, dq, dk, dv}) {
      CAPTURE(to_string(name));
      CHECK(compare(capped[name], plain.exact()[name]).max_abs <= plain.bound(name).bound());
    }
  }
}

TEST_CASE("split keys and packed heads take each sink once") {
  AttentionProblem p = two_tiles();
  p.score_mods = {.softcap = 3, .alibi = true, .learned_sink = true};
  const Kernel& kernel = cpu_kernels().back();
  Reference reference(p, InputKind::normal, Direction::forward);
  for (const bool pack_gqa : {false, true}) {
    for (const int splits : {1, 2, 5}) {
      ProgramOptions options = ProgramOptions::with_tile({16, 8});
      options.pack_gqa = pack_gqa;
      if (splits > 1) options.splits = {SplitPolicy::Kind::number, splits};
      CAPTURE(pack_gqa);
      CAPTURE(splits);
      TileObserver observer;
      reference.run(kernel, options, Direction::forward, &observer);
      CHECK(reference.judge(Direction::forward).passed());
      const auto where = first_divergence(reference, kernel, options, Direction::forward, observer);
      if (where) FAIL_CHECK(describe(*where, p));
    }
  }
}

TEST_CASE("a row that sees no key has its head's sink as LSE, zeros and no gradient") {
  AttentionProblem p = two_tiles();  // its first queries stand before the first key
  p.score_mods.learned_sink = true;
  for (const testing::KernelCase& c : cases_with_score_mods()) {
    CAPTURE(c.name());
    const TensorSet results = results_of(c, p);
    for (std::int64_t head = 0; head < p.heads; ++head) {
      CHECK(results[lse].get(results[lse].row_index(1, head, 2)) ==
            doctest::Approx(results[sink].get(head)).epsilon(1e-6));
      for (std::int64_t d = 0; d < p.head_dim; ++d) {
        CHECK(results[out].get(results[out].row_index(1, head, 2) + d) == 0.0f);
        CHECK(results[dq].get(results[dq].row_index(1, head, 2) + d) == 0.0f);
      }
    }
  }
}

TEST_CASE("gradients of modified scores, and of sinks, agree with differences of the kernel's own results") {
  AttentionProblem p = two_tiles();
  p.score_mods = {.softcap = 2, .alibi = true, .learned_sink = true};
  for (const testing::KernelCase& c : cases_with_score_mods()) {
    CAPTURE(c.name());
    ProgramOptions options = ProgramOptions::with_tile({16, 16});
    options.backward = c.backward;
    bool sinks = false;
    for (const GradientCheck& check : check_gradients(*c.kernel, p, options, 2)) {
      CAPTURE(to_string(check.gradient));
      CHECK(check.passed());
      sinks = sinks || check.gradient == dsink;
    }
    CHECK(sinks);
  }
}

/// f' against a central difference of f, of every modifier in `mods`.
void check_derivatives(const ScoreMods& mods) {
  for_each_score_mod(mods, 0.5, 0.25f, [](const ScoreMod auto& mod) {
    for (const int key : {0, 3, 9}) {
      const ScorePlace at{4, key, 1};
      for (float score = -12.0f; score <= 12.0f; score += 0.25f) {
        constexpr float h = 0x1p-6f;
        const double difference =
            (static_cast<double>(mod.value(score + h, at)) - static_cast<double>(mod.value(score - h, at))) /
            (2.0 * static_cast<double>(h));
        CAPTURE(score);
        CHECK(std::abs(difference - static_cast<double>(mod.derivative(score, at))) < 2e-4);
      }
    }
  });
}

TEST_CASE("the derivative of each modifier is the slope of its values") {
  for (const ScoreModRow& row : score_mod_rows()) {
    ScoreMods mods;
    row.set(mods, row.example);
    CAPTURE(row.name);
    check_derivatives(mods);
  }
}

TEST_CASE("kernels and the judge state the modifiers alike") {
  AttentionProblem p = two_tiles();
  for (const ScoreModRow& row : score_mod_rows()) row.set(p.score_mods, row.example);
  TensorSet inputs(p);
  fill_score_operands(inputs);
  const ExactScores exact(inputs);
  for (std::int64_t head = 0; head < p.heads; ++head) {
    for (const int query : {0, 4, 40}) {
      for (const int key : {0, 7, 36}) {
        for (const float scaled : {-30.0f, -1.5f, 0.0f, 0.125f, 3.0f}) {
          const ScorePlace at{query, key, static_cast<int>(p.seqlen_k - p.seqlen_q)};
          constexpr double unit = 0.5;
          float value = scaled / 0.5f, derivative = 1;
          for_each_score_mod(p.score_mods, unit, inputs[alibi_slopes].get(head),
                             [&](const ScoreMod auto& mod) {
                               derivative *= mod.derivative(value, at);
                               value = mod.value(value, at);
                             });
          const ExactScore score = exact(p.heads + head, query, key, scaled);
          CHECK(unit * value == doctest::Approx(score.value).epsilon(1e-6));
          CHECK(derivative == doctest::Approx(score.derivative).epsilon(1e-5));
        }
      }
    }
  }
}

TEST_CASE("slopes are those of ALiBi's paper, of a number of heads that is no power of 2 too") {
  CHECK(alibi_slope(0, 8) == 0.5f);
  CHECK(alibi_slope(7, 8) == 0x1p-8f);
  CHECK(alibi_slope(0, 16) == doctest::Approx(std::sqrt(0.5)));
  CHECK(alibi_slope(7, 12) == 0x1p-8f);                          // of 8 heads
  CHECK(alibi_slope(8, 12) == doctest::Approx(std::sqrt(0.5)));  // every other one of 16
  CHECK(alibi_slope(11, 12) == doctest::Approx(std::exp2(-3.5)));
}

TEST_CASE("what cannot be is refused with the field's name, and so is a kernel that lacks a modifier") {
  for (const double cap :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    AttentionProblem p = two_tiles();
    p.score_mods.softcap = cap;
    CHECK_THROWS_WITH_AS(validate(p), doctest::Contains("softcap"), BadInput);
  }
  ScoreMods mods;
  CHECK_THROWS_WITH_AS(set_score_mod(mods, "softcap", -1.0), doctest::Contains("from 0 on"), BadInput);
  CHECK_THROWS_WITH_AS(set_score_mod(mods, "softcap", 1e39), doctest::Contains("from 0 on"), BadInput);
  CHECK_THROWS_AS(set_score_mod(mods, "softcap", std::string("50x")), BadInput);
  AttentionProblem p = two_tiles();
  p.score_mods.alibi = true;
  p.softmax_scale = 0.0;
  CHECK_THROWS_WITH_AS(validate(p), doctest::Contains("scale"), BadInput);
  p.softmax_scale.reset();
  for (const Kernel& kernel : cpu_kernels()) {
    const auto refusal = kernel.refusal(p, Direction::forward, kernel.default_options(p));
    CHECK(refusal.has_value() == (kernel.algorithm == Algorithm::flash1));
    if (refusal) CHECK(refusal->find("ALiBi") != std::string::npos);
  }
}

}  // namespace
}  // namespace tilescope
