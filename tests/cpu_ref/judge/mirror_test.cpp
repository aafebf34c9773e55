// SPDX-License-Identifier: Apache-2.0
// How far a kernel may be from the one that it mirrors, and what of it is seen.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/verify_cases.hpp"
#include "tests/cpu_ref/instruction_sets.hpp"
#include "tests/cpu_ref/judge/damaged_kernels.hpp"

namespace tilescope {
namespace {

using namespace testing;

/// The largest that a tensor's elements may be off their mirror's.
double largest_mirror_bound(const Reference& reference, TensorName name) {
  const std::vector<MirrorBound> rows = reference.mirror_bounds(name);
  const std::span<const double> exact = reference.exact()[name];
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    if (!std::isfinite(exact[i])) continue;
    largest = std::max(largest, rows[i / (exact.size() / rows.size())].at(exact[i]));
  }
  return largest;
}

TEST_CASE("a mirror's bound is tighter than the exact one in every case of the sweep") {
  int tensors = 0, of_one_unit = 0;
  for (const VerifyCase& c : verify_cases(kTile, SweepSize::normal)) {
    const Reference reference(c.problem, c.inputs, c.direction);
    CAPTURE(describe(c.problem));
    CAPTURE(to_string(c.inputs));
    for (Direction direction : {Direction::forward, Direction::backward}) {
      if (direction == Direction::backward && c.direction == Direction::forward) break;
      for (TensorName name : output_tensors(c.problem, direction)) {
        CAPTURE(to_string(name));
        const ErrorBound& exact = reference.bound(name);
        const double unit = MirrorBound{.dtype = tensor_extent(c.problem, name).dtype}.at(exact.largest);
        const double bound = largest_mirror_bound(reference, name);
        ++tensors;
        // Where results are all exact to a unit, a unit is the least that two may be apart.
        if (reference.coarseness() > 0.05) {  // P's own roundings differ
          CHECK(c.inputs == InputKind::huge_scale);
          CHECK(bound <= std::max(unit, 2 * exact.bound()));
        } else if (unit >= 0.9 * exact.bound()) {
          ++of_one_unit;
          CHECK(bound <= unit);
        } else {
          CHECK(bound < exact.bound());
        }
      }
    }
  }
  MESSAGE(of_one_unit, " of ", tensors, " tensors are held to one unit in the last place");
  CHECK(of_one_unit < tensors / 10);
}

/// `value` a few units in the last place away.
float off_by_units(float value, ElementType dtype, int units) {
  return value + static_cast<float>(units * MirrorBound{.dtype = dtype}.at(value));
}

TEST_CASE("a mirror is held row by row: a row of small terms gets a small bound") {
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    CAPTURE(to_string(dtype));
    AttentionProblem problem = small_problem(dtype);
    TensorSet inputs(problem);
    fill_random_inputs(inputs, Direction::backward);
    Tensor& values = inputs[v];  // of batch 0, head 1 a thousandth of those of head 0
    for (std::int64_t i = values.row_index(0, 1, 0); i < values.shape().elements(); ++i) {
      values.set(i, values.get(i) * 0x1p-10f);
    }
    Reference reference(std::move(inputs), Direction::forward);
    const Kernel& flash2 = kernel_named("cpu:flash2");
    const ProgramOptions options = ProgramOptions::with_tile(kTile);
    reference.run(flash2, options, Direction::forward);
    const TensorSet mirror = reference.take_outputs();
    reference.run(flash2, options, Direction::forward);
    TensorSet kernel = reference.take_outputs();
    CHECK(judge_mirror(reference, kernel, mirror, Direction::forward).passed());
    const std::int64_t small = kernel[out].row_index(0, 3, 20);
    const float right = kernel[out].get(small);
    kernel[out].set(small, right + static_cast<float>(0.5 * reference.bound(out).bound()));
    const Verdict verdict = judge_mirror(reference, kernel, mirror, Direction::forward);
    CHECK(refused(verdict) == std::vector{out});
    CHECK(verdict.tensors[0].error.worst_index == small);
    kernel[out].set(small, off_by_units(right, dtype, 1));  // a tipped rounding
    CHECK(judge_mirror(reference, kernel, mirror, Direction::forward).passed());
  }
}

TEST_CASE("where results are subnormal, a unit is the spacing of subnormals") {
  CHECK(MirrorBound{.dtype = ElementType::fp16}.at(1e-6) == 0x1p-24);
  CHECK(MirrorBound{.dtype = ElementType::fp16}.at(0) == 0x1p-24);
  CHECK(MirrorBound{.dtype = ElementType::fp16}.at(1.5) == 0x1p-10);
  CHECK(MirrorBound{.dtype = ElementType::bf16}.at(1e-6) < 1e-8);
}

TEST_CASE("conditional rescaling rounds P otherwise than a mirror, and excuse nothing else") {
  for (ElementType dtype : {ElementType::fp16, ElementType::bf16}) {
    CAPTURE(to_string(dtype));
    AttentionProblem problem = small_problem(dtype);
    problem.seqlen_q = 512;
    problem.seqlen_k = 400;
    problem.causal = false;
    Reference reference(problem, InputKind::normal, Direction::backward);
    const Kernel& flash2 = kernel_named("cpu:flash2");
    ProgramOptions options = ProgramOptions::with_tile(kTile);
    reference.run(flash2, options, Direction::backward);
    const TensorSet mirror = reference.take_outputs();
    options.scan = Scan::descending;  // other tiles have been seen: most rows take P relative to other maxima
    reference.run(flash2, options, Direction::backward);
    const auto judged = [&](Rescaling rescaling) {
      return refused(judge_mirror(reference, reference.tensors(), mirror, Direction::backward,
                                  {.rescaling = rescaling}));
    };
    CHECK(!judged(Rescaling::always).empty());
    CHECK(judged(Rescaling::conditional).empty());
    reference.run(damaged_kernel<out, Damage::scaled>(), options, Direction::backward);
    CHECK(judged(Rescaling::conditional).front() == out);
  }
}

TEST_CASE("a mirror sums fp8 as the tensor cores do, or its LSE is another, other types do not ask") {
  const Kernel& flash2 = kernel_named("cpu:flash2");
  for (ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2, ElementType::bf16}) {
    CAPTURE(to_string(dtype));
    Reference reference(small_problem(dtype), InputKind::normal, Direction::forward);
    const auto outputs = [&](Fp8Sums sums) {
      ProgramOptions options = ProgramOptions::with_tile(kTile);
      options.fp8_sums = sums;
      reference.run(flash2, options, Direction::forward);
      CHECK(reference.judge(out).passed);
      return reference.take_outputs();
    };
    const TensorSet in_fp32 = outputs(Fp8Sums::fp32), two_level = outputs(Fp8Sums::two_level),
                    fast = outputs(Fp8Sums::fast);
    const auto judged = [&](const TensorSet& kernel, const TensorSet& mirror, double sum_error) {
      return refused(
          judge_mirror(reference, kernel, mirror, Direction::forward, {.fp8_sum_error = sum_error}));
    };
    constexpr double kAnySum = 0x1p-4;  // of P V: no LSE moves with it
    CHECK(judged(two_level, two_level, 0).empty());
    CHECK(judged(two_level, in_fp32, kAnySum).empty() != is_fp8(dtype));
    CHECK(judged(fast, two_level, kAnySum).empty());
    CHECK((compare(fast[out], two_level[out]).max_abs == 0) != is_fp8(dtype));
  }
}

/// cpu:standard on q and k whose columns are reversed: the same products, summed the other way.
void run_reversed(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                  TileObserver* observer) {
  const auto reverse_columns = [&tensors] {
    for (const TensorName name : {q, k}) {
      Tensor& tensor = tensors[name];
      const std::int64_t cols = tensor.shape().cols;
      for (std::int64_t i = 0; i < tensor.shape().elements(); i += cols) {
        for (std::int64_t left = i, right = i + cols - 1; left < right; ++left, --right) {
          const float value = tensor.get(left);
          tensor.set(left, tensor.get(right));
          tensor.set(right, value);
        }
      }
    }
  };
  reverse_columns();
  kernel_named("cpu:standard").run(options, direction, tensors, observer);
  reverse_columns();
}

TEST_CASE("scores that are stored after sums in another order tip, which those say that store them") {
  AttentionProblem problem = small_problem(ElementType::fp16);
  problem.seqlen_q = problem.seqlen_k = 300;
  problem.head_dim = 64;
  Reference reference(problem, InputKind::normal, Direction::forward);
  const Kernel& standard = kernel_named("cpu:standard");
  Kernel reversed = standard;
  reversed.run = run_reversed;
  const ProgramOptions options = ProgramOptions::with_tile(kTile);
  reference.run(standard, options, Direction::forward);
  const TensorSet mirror = reference.take_outputs();
  reference.run(reversed, options, Direction::forward);
  const auto judged = [&](bool stores) {
    return refused(
        judge_mirror(reference, reference.tensors(), mirror, Direction::forward, {.stores_scores = stores}));
  };
  CHECK(judged(false) == std::vector{lse});
  CHECK(judged(true).empty());
  // A score off by two hundredths of itself is no tipped rounding.
  reference.run(damaged_kernel<lse, Damage::nudge, true>(), options, Direction::forward);
  CHECK(judged(true) == std::vector{lse});
  for (const TensorName name : {out, lse}) {
    const std::vector<MirrorBound> strict = reference.mirror_bounds(name),
                                   stored = reference.mirror_bounds(name, {.stores_scores = true});
    for (std::size_t i = 0; i < strict.size(); ++i) {
      CHECK(stored[i].before_rounding >= strict[i].before_rounding);  // of one visible key's `out` equal
      CHECK(stored[i].most == strict[i].most);
    }
  }
}

TEST_CASE("one per cent more is too much for a mirror in any type") {
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    CAPTURE(to_string(dtype));
    Reference reference(small_problem(dtype), InputKind::normal, Direction::backward);
    const ProgramOptions options = ProgramOptions::with_tile(kTile);
    const Kernel& flash2 = kernel_named("cpu:flash2");
    reference.run(flash2, options, Direction::backward);
    const TensorSet mirror = reference.take_outputs();
    reference.run(flash2, options, Direction::backward);
    CHECK(judge_mirror(reference, reference.tensors(), mirror, Direction::backward).passed());
    reference.run(damaged_kernel<dk, Damage::scaled>(), options, Direction::backward);
    CHECK(refused(judge_mirror(reference, reference.tensors(), mirror, Direction::backward)) ==
          std::vector{dk});
  }
  CHECK(mirror_rules().size() == std::size(kElementTypes));
}

TEST_CASE("instruction sets, which sum in other orders, are mirrors of each other") {
  for (const VerifyCase& c : verify_cases(kTile, SweepSize::quick)) {
    Reference reference(c.problem, c.inputs, c.direction);
    CAPTURE(describe(c.problem));
    CAPTURE(to_string(c.inputs));
    for (const Kernel& kernel : cpu_kernels()) {
      if (missing_feature(kernel.can, c.problem, Direction::forward)) continue;
      CAPTURE(kernel.name);
      const ProgramOptions options = case_options(c, kernel);
      std::optional<TensorSet> mirror;
      testing::for_each_instruction_set([&] {
        reference.run(kernel, options, c.direction);
        TensorSet outputs = reference.take_outputs();
        if (mirror) CHECK(refused(judge_mirror(reference, outputs, *mirror, c.direction)).empty());
        mirror = std::move(outputs);
      });
    }
  }
}

TEST_CASE("one NaN or infinity is too much for a mirror, whatever the rest") {
  for (const float wrong :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    CAPTURE(wrong);
    Reference reference(small_problem(), InputKind::normal, Direction::backward);
    const Kernel& flash2 = kernel_named("cpu:flash2");
    reference.run(flash2, ProgramOptions::with_tile(kTile), Direction::backward);
    const TensorSet mirror = reference.take_outputs();
    reference.run(flash2, ProgramOptions::with_tile(kTile), Direction::backward);
    TensorSet kernel = reference.take_outputs();
    for (const TensorName name : {out, dq, dk, dv}) {
      const std::int64_t middle = kernel[name].shape().elements() / 2;
      const float right = kernel[name].get(middle);
      kernel[name].set(middle, wrong);
      CHECK(refused(judge_mirror(reference, kernel, mirror, Direction::backward)) == std::vector{name});
      kernel[name].set(middle, right);
    }
  }
}

TEST_CASE("what a device flushes to zero, by hand: gradients of nothing") {
  TensorSet inputs({.seqlen_k = 2, .head_dim = 1, .softmax_scale = -2.0});
  for (TensorName name : {q, k, v, dout}) inputs.allocate(name);
  inputs[q].set(0, 3.0f);
  for (const int key : {0, 1}) inputs[k].set(key, 1.0f);
  for (const int key : {0, 1}) inputs[v].set(key, 2.0f);
  inputs[dout].set(0, 0.0f);  // no gradient has terms: what is left is four units of 2^-126 of each dS
  const Reference reference(std::move(inputs), Direction::backward);
  const auto units = [&](TensorName name) {
    return reference.mirror_bounds(name)[0].before_rounding / 0x1p-126;
  };
  CHECK(units(dq) == doctest::Approx(4 * 2 * std::sqrt(2)));  // two keys of 1, times the scale
  CHECK(units(dk) == doctest::Approx(4 * 2 * 3));             // one query of 3, times the scale
}

}  // namespace
}  // namespace tilescope
