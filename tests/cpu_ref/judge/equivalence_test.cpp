// SPDX-License-Identifier: Apache-2.0
// The judge lets right kernels pass and sees what is wrong with others, its own yardstick included.
#include "cpu_ref/judge/equivalence.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu_ref/judge/verify_cases.hpp"
#include "tests/cpu_ref/judge/damaged_kernels.hpp"

namespace tilescope {
namespace {

using namespace testing;

TEST_CASE("every kernel passes the quick sweep") {
  for (const VerifyCase& c : verify_cases(kTile, SweepSize::quick)) {
    Reference reference(c.problem, c.inputs, c.direction);
    for (const Kernel& kernel : cpu_kernels()) {
      if (missing_feature(kernel.can, c.problem, Direction::forward)) continue;
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

}  // namespace
}  // namespace tilescope
