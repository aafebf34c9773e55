// SPDX-License-Identifier: Apache-2.0
// The judge lets right kernels pass and sees what is wrong with others, its own yardstick included.
#include "cpu_ref/judge/equivalence.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "cpu_ref/judge/error_scale.hpp"
#include "cpu_ref/judge/verify_cases.hpp"

namespace tilescope {
namespace {

using enum TensorName;
constexpr TileShape kTile{16, 24};

const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw BadInput("no such kernel");
}

/// What a damaged kernel does to its results.
enum class Damage { none, nudge, nan, unwritten, missing, wrong_type, scaled };

/// cpu:flash2 or cpu:standard whose output `name` is then damaged.
template <TensorName name, Damage damage, bool standard = false>
void run_damaged(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                 TileObserver* observer) {
  kernel_named(standard ? "cpu:standard" : "cpu:flash2").run(options, direction, tensors, observer);
  const bool gradient = name != out && name != lse;
  if (gradient != (direction == Direction::backward)) return;
  Tensor& tensor = tensors[name];
  const std::int64_t middle = tensor.shape().elements() / 2;
  switch (damage) {
    case Damage::none:
      break;
    case Damage::nudge:
      tensor.set(middle, tensor.get(middle) + 0.01f);
      break;
    case Damage::nan:
      tensor.set(middle, std::numeric_limits<float>::quiet_NaN());
      break;
    case Damage::unwritten: {
      const Tensor right = tensor.as(tensor.dtype());
      tensors.allocate(name);
      for (std::int64_t i = 0; i < middle; ++i) tensor.set(i, right.get(i));
      break;
    }
    case Damage::missing:
      tensor = Tensor();
      break;
    case Damage::wrong_type:
      tensor = tensor.as(ElementType::bf16);
      break;
    case Damage::scaled:
      for (std::int64_t i = 0; i < 2 * middle; ++i) tensor.set(i, 1.01f * tensor.get(i));
      break;
  }
}

template <TensorName name, Damage damage, bool standard = false>
Kernel damaged_kernel() {
  Kernel kernel = kernel_named(standard ? "cpu:standard" : "cpu:flash2");
  kernel.run = run_damaged<name, damage, standard>;
  return kernel;
}

AttentionProblem small_problem(ElementType dtype = ElementType::fp32) {
  return {.heads = 4,
          .heads_kv = 2,
          .seqlen_q = 35,
          .seqlen_k = 53,
          .head_dim = 16,
          .dtype = dtype,
          .causal = true};
}

/// The tensors that are refused.
std::vector<TensorName> refused(const Verdict& verdict) {
  std::vector<TensorName> names;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) names.push_back(tensor.tensor);
  }
  CHECK(verdict.passed() == names.empty());
  return names;
}

TEST_CASE("every kernel passes the quick sweep") {
  for (const VerifyCase& c : verify_cases(kTile, SweepSize::quick)) {
    Reference reference(c.problem, c.inputs, c.direction);
    for (const Kernel& kernel : cpu_kernels()) {
      ProgramOptions options = case_options(c, kernel);
      for (BackwardOrder order : backward_orders(c, kernel)) {
        options.backward = order;
        CAPTURE(kernel.name);
        CAPTURE(to_string(order));
        CAPTURE(describe(c.problem));
        CAPTURE(to_string(c.inputs));
        CHECK(refused(reference.judge(kernel, options, c.direction)).empty());
      }
    }
  }
}

template <TensorName name>
void check_damage_is_seen() {
  CAPTURE(to_string(name));
  Reference reference(small_problem(), InputKind::normal, Direction::backward);
  const ProgramOptions options = ProgramOptions::with_tile(kTile);
  const bool gradient = name != out && name != lse;  // a backward pass would stumble over a missing out
  const Direction direction = gradient ? Direction::backward : Direction::forward;
  const auto judge = [&](const Kernel& kernel) { return reference.judge(kernel, options, direction); };
  CHECK(judge(damaged_kernel<name, Damage::none>()).passed());
  for (const Verdict& verdict :
       {judge(damaged_kernel<name, Damage::nan>()), judge(damaged_kernel<name, Damage::missing>()),
        judge(damaged_kernel<name, Damage::wrong_type>()), judge(damaged_kernel<name, Damage::unwritten>()),
        judge(damaged_kernel<name, Damage::nudge>()), judge(damaged_kernel<name, Damage::scaled>())}) {
    const std::vector<TensorName> names = refused(verdict);
    REQUIRE(!names.empty());
    CHECK(names.front() == name);
  }
  const Verdict nudged = judge(damaged_kernel<name, Damage::nudge>());
  for (const TensorVerdict& tensor : nudged.tensors) {
    if (tensor.tensor != name) continue;
    const TensorExtent extent = tensor_extent(reference.problem(), name);
    CHECK(tensor.error.worst_index == extent.elements() / 2);
    CHECK(tensor.error.max_abs == doctest::Approx(0.01).epsilon(0.01));
  }
}

TEST_CASE("one damaged element of any output is seen, and named") {
  check_damage_is_seen<out>();
  check_damage_is_seen<lse>();
  check_damage_is_seen<dq>();
  check_damage_is_seen<dk>();
  check_damage_is_seen<dv>();
}

TEST_CASE("nothing of an earlier run counts") {
  Reference reference(small_problem(), InputKind::normal, Direction::forward);
  const ProgramOptions options = ProgramOptions::with_tile(kTile);
  CHECK(reference.judge(kernel_named("cpu:flash1"), options, Direction::forward).passed());
  Kernel idle = kernel_named("cpu:flash2");
  idle.run = [](const ProgramOptions&, Direction, TensorSet&, TileObserver*) {};
  CHECK(refused(reference.judge(idle, options, Direction::forward)) == std::vector{out, lse});
}

template <TensorName name, Damage damage>
void check_wrong_yardstick(ElementType dtype) {
  CAPTURE(to_string(dtype));
  CAPTURE(to_string(name));
  const Kernel wrong = damaged_kernel<name, damage, true>();
  Reference reference(small_problem(dtype), InputKind::normal, Direction::backward, wrong);
  const ProgramOptions options = ProgramOptions::with_tile(kTile);
  CHECK(refused(reference.judge(wrong, options, Direction::backward)) == std::vector{name});
  CHECK(reference.judge(kernel_named("cpu:flash1"), options, Direction::backward).passed());
}

TEST_CASE("a wrong yardstick is refused and excuses nobody") {
  check_wrong_yardstick<out, Damage::nan>(ElementType::bf16);
  check_wrong_yardstick<dk, Damage::missing>(ElementType::fp16);
  check_wrong_yardstick<out, Damage::scaled>(ElementType::fp32);
  check_wrong_yardstick<lse, Damage::scaled>(ElementType::fp32);
  check_wrong_yardstick<dq, Damage::scaled>(ElementType::fp32);
  check_wrong_yardstick<dk, Damage::scaled>(ElementType::fp32);
  check_wrong_yardstick<dv, Damage::scaled>(ElementType::fp32);
}

TEST_CASE("the bound is a few roundings, not a tolerance") {
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    const Reference reference(small_problem(dtype), InputKind::normal, Direction::backward);
    for (TensorName name : {out, dq, dk, dv}) {
      CAPTURE(to_string(dtype));
      CAPTURE(to_string(name));
      double largest = 0;
      for (double value : reference.exact()[name]) largest = std::max(largest, std::abs(value));
      const double ulp = largest * (dtype == ElementType::fp32   ? 0x1p-23
                                    : dtype == ElementType::fp16 ? 0x1p-10
                                                                 : 0x1p-7);
      CHECK(reference.bound(name).bound() > 0.25 * ulp);
      CHECK(reference.bound(name).bound() < (dtype == ElementType::fp32 ? 100 : 8) * ulp);
    }
  }
}

TEST_CASE("a mirror is held to a tighter rule than the exact result") {
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    CAPTURE(to_string(dtype));
    Reference reference(small_problem(dtype), InputKind::normal, Direction::backward);
    const ProgramOptions options = ProgramOptions::with_tile(kTile);
    const Kernel& flash2 = kernel_named("cpu:flash2");
    reference.run(flash2, options, Direction::backward);
    const TensorSet mirror = reference.take_outputs();
    reference.run(flash2, options, Direction::backward);
    CHECK(judge_mirror(reference, reference.tensors(), mirror, Direction::backward).passed());
    // 1 % more in every element: too much for a mirror in any type.
    reference.run(damaged_kernel<dk, Damage::scaled>(), options, Direction::backward);
    CHECK(refused(judge_mirror(reference, reference.tensors(), mirror, Direction::backward)) ==
          std::vector{dk});
  }
  CHECK(mirror_rules().size() == std::size(kElementTypes));
}

TEST_CASE("the scale of errors by hand: two keys") {
  TensorSet inputs({.seqlen_k = 2, .head_dim = 1, .softmax_scale = -2.0});
  for (TensorName name : {q, k, v, dout}) inputs.allocate(name);
  inputs[q].set(0, 3.0f);
  inputs[k].set(0, 1.0f);
  inputs[k].set(1, 1.0f);  // P = (1/2, 1/2), both scores -6
  inputs[v].set(0, -4.0f);
  inputs[v].set(1, 2.0f);  // out = -1
  inputs[dout].set(0, 5.0f);
  const ErrorScale scale = error_scale(inputs, exact_attention(inputs, Direction::backward));
  CHECK(scale.score == doctest::Approx(6));
  CHECK(scale.out == doctest::Approx(3));           // 1/2 * 4 + 1/2 * 2
  CHECK(scale.dv == doctest::Approx(2.5));          // 1/2 * 5
  CHECK(scale.dq == doctest::Approx(60));           // |dP| = 20, 10; |delta| = 15: 2 * 1/2 * (35 + 25)
  CHECK(scale.dk == doctest::Approx(105));          // 2 * 1/2 * 35 * 3
  CHECK(scale.dq_by_probs == doctest::Approx(30));  // dS = 1/2 (-20 + 5), 1/2 (10 + 5): 2 * (7.5 + 7.5)
  CHECK(scale.dk_by_probs == doctest::Approx(45));  // 2 * 7.5 * 3
  CHECK(scale.dq_by_out == doctest::Approx(10));    // 2 * (1/2 + 1/2) * 5
  CHECK(scale.dk_by_out == doctest::Approx(15));    // 2 * 1/2 * 5 * 3
}

}  // namespace
}  // namespace tilescope
