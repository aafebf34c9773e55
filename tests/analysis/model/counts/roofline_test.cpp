// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/roofline.hpp"

#include <doctest/doctest.h>

#include <set>

#include "analysis/model/counts/closed_form.hpp"
#include "tests/analysis/algorithm_choices.hpp"

namespace tilescope {
namespace {

Machine toy() {
  Machine machine;
  machine.dram_bytes_per_second = {100.0, "test", "datasheet"};
  machine.l2_bytes_per_second = Fact<double>{400.0, "test", "unverified"};
  machine.peak_flops_per_second["fp16"] = {1000.0, "test", "datasheet"};
  machine.sm_count = {2, "test", "datasheet"};
  machine.sm_clock_hz = {5.0, "test", "datasheet"};
  machine.exponentials_per_clock_per_sm = Fact<std::int64_t>{4, "test", "datasheet"};
  return machine;
}

Roofline reach(const KernelWork& work, ElementType dtype = ElementType::fp16) {
  return roofline(work, ceilings_of(toy(), dtype));
}

}  // namespace

TEST_CASE("the ceiling that takes longest limits") {
  // 1000 FLOP take 1 s at the peak; 10 bytes, 5 bytes and 4 exponentials less.
  const KernelWork by_peak{1000, 10, 5, 4};
  CHECK(reach(by_peak).limit == "fp16 peak");
  CHECK(reach(by_peak).least_seconds.value() == doctest::Approx(1));
  const Roofline dram = reach({1000, 500, 400, 4});
  CHECK(dram.limit == "DRAM bandwidth");
  CHECK(dram.least_seconds.value() == doctest::Approx(4));
  CHECK(dram.attainable_flops_per_second.value() == doctest::Approx(250));
  CHECK(reach({1000, 4000, 400, 4}).limit == "SM<->L2 bandwidth");
  // 2 SMs of 4 a clock at 5 Hz: 40 a second.
  const Roofline exponentials = reach({1000, 10, 5, 80});
  CHECK(exponentials.limit == "exponentials");
  CHECK(exponentials.least_seconds.value() == doctest::Approx(2));
}

TEST_CASE("what is not known does not limit") {
  CHECK(reach({1000, std::nullopt, std::nullopt, 0}).limit == "fp16 peak");
  const Roofline none = reach({1000, std::nullopt, std::nullopt, 0}, ElementType::fp8e4m3);
  CHECK(none.limit == "");
  CHECK_FALSE(none.attainable_flops_per_second);
  CHECK(ceilings_of(toy(), ElementType::fp8e4m3).size() == 3);
}

TEST_CASE("a measured ceiling takes the place of a stated one, and only that") {
  Machine other = toy();
  other.dram_bytes_per_second = {90.0, "test", "measured"};
  other.l2_bytes_per_second = Fact<double>{300.0, "test", "assumed"};
  const std::vector<Ceiling> ceilings =
      best_documented(ceilings_of(toy(), ElementType::fp16), ceilings_of(other, ElementType::fp16));
  REQUIRE(ceilings.size() == 4);
  for (const Ceiling& ceiling : ceilings) {
    CHECK(ceiling.measured == (ceiling.kind == CeilingKind::dram));
    if (ceiling.kind == CeilingKind::dram) CHECK(ceiling.per_second == 90);
    if (ceiling.kind == CeilingKind::sm_l2) CHECK(ceiling.per_second == 400);
  }
}

TEST_CASE("shares of ceilings") {
  const std::vector<Ceiling> ceilings = ceilings_of(toy(), ElementType::fp16);
  const KernelWork work{1000, 400, std::nullopt, 20};
  CHECK_FALSE(share_of(ceilings[3], {1000, 400, 5, 0}, 2));
  CHECK(share_of(ceilings[0], work, 2).value() == doctest::Approx(0.5));
  CHECK(share_of(ceilings[1], work, 2).value() == doctest::Approx(0.5));
  CHECK_FALSE(share_of(ceilings[2], work, 2));
  CHECK(share_of(ceilings[3], work, 2).value() == doctest::Approx(0.25));
  CHECK_FALSE(share_of(ceilings[0], work, 0));
}

TEST_CASE("exponentials: one for each visible pair where a pass computes P") {
  AttentionProblem problem;
  problem.heads = problem.heads_kv = 3;
  problem.seqlen_q = problem.seqlen_k = 10;
  problem.causal = true;
  const std::int64_t pairs = 3 * 55;
  const std::set<PassName> computing = {PassName::forward, PassName::softmax, PassName::dkdv,
                                        PassName::dq,      PassName::dkdvdq,  PassName::dqdkdv};
  for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
    for (const TileProgram& program : testing::programs_of(choice, problem, {})) {
      CHECK(exponentials(program) == (computing.contains(program.name) ? pairs : 0));
    }
  }
}

}  // namespace tilescope
