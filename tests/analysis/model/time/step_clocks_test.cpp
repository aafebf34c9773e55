// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/step_clocks.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/model/time/closed_network.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

AttentionProblem long_problem(std::int64_t head_dim) {
  return {.batch = 1,
          .heads = 16,
          .heads_kv = 16,
          .seqlen_q = 4096,
          .seqlen_k = 4096,
          .head_dim = head_dim,
          .dtype = ElementType::fp16};
}

TileProgram program_of(const Kernel& kernel, const AttentionProblem& problem, PassName name,
                       const ProgramOptions& options) {
  const Direction direction = name == PassName::forward ? Direction::forward : Direction::backward;
  const auto programs = kernel.programs(direction, problem, options);
  return *std::find_if(programs.begin(), programs.end(),
                       [name](const TileProgram& program) { return program.name == name; });
}

std::optional<CtaClocks> clocks_of(const char* name, const AttentionProblem& problem, PassName pass,
                                   const Machine& machine) {
  const Kernel& kernel = find_kernel(name);
  return cta_clocks(kernel, program_of(kernel, problem, pass, kernel.default_options(problem)), machine,
                    machine.sm_count.value);
}

}  // namespace

TEST_CASE("workers of a closed network wait for each other by hand") {
  CHECK(steps_per_clock({3, 5}, 2, 1) == doctest::Approx(1.0 / 10));
  CHECK(steps_per_clock({1, 1}, 0, 2) == doctest::Approx(2.0 / 3));  // each finds the other half of the time
  CHECK(steps_per_clock({4, 1}, 0, 200) == doctest::Approx(1.0 / 4).epsilon(1e-3));
  double before = 0;
  for (int workers = 1; workers <= 8; ++workers) {
    const double rate = steps_per_clock({1024, 832, 256}, 220, workers);
    CHECK(rate > before);
    CHECK(rate < 1.0 / 1024);
    before = rate;
  }
}

TEST_CASE("a step's clocks are those of its products, scores and bytes by hand") {
  const Machine machine = load_machine("h200-measured");
  const auto forward = clocks_of("gpu:flash3", long_problem(128), PassName::forward, machine);
  REQUIRE(forward);
  CHECK(forward->step.tensor == 2.0 * 2 * 128 * 128 * 128 / 4096);
  CHECK(forward->step.arithmetic == doctest::Approx(128 * 128 * (1.0 / 16 + 2.0 / 128 + 0.5 / 64)));
  CHECK(forward->masked > 0);
  CHECK(forward->step.out == 0);
  const double in_rate = machine.l2_bytes_per_second->value / 132 / 1.98e9;
  // 132 CTAs are four heads of 32 and a part of a fifth: two are of one head by 4 * (32 / 132)^2 + (4 /
  // 132)^2.
  const double looked_up = 1 - 0.5 * (4 * 32.0 * 32 + 4 * 4) / (132.0 * 132);
  CHECK(forward->step.in == doctest::Approx(2 * 128 * 128 * 2 * looked_up / in_rate));
  CHECK(forward->between > std::max(forward->step.tensor, forward->step.in));

  const auto backward = clocks_of("gpu:flash3", long_problem(128), PassName::dkdvdq, machine);
  REQUIRE(backward);
  CHECK(backward->step.tensor == 5.0 * 2 * 64 * 128 * 128 / 4096);
  constexpr double kSums = 64 * 128 * 4, kLoaded = 2 * 64 * 128 * 2 + 2 * 64 * 4;
  CHECK(backward->step.out == doctest::Approx(kSums / 26.7));
  CHECK(backward->step.l2 == doctest::Approx((kLoaded * looked_up + 2.12 * kSums) / in_rate));

  // mma.sync multiplies at its own rate, and fragments are loaded before: K for each 32 rows, V likewise, Q
  // again.
  const auto mma = clocks_of("gpu:flash2-mma", long_problem(128), PassName::forward, machine);
  REQUIRE(mma);
  CHECK(mma->step.tensor == doctest::Approx(2.0 * 2 * 128 * 64 * 128 / 4096 / 0.66));
  const double fragments = 2.0 * 128 * 64 * 128 * (2.0 / 32 + 1.0 / 64);
  CHECK(mma->step.shared == doctest::Approx((fragments + 2 * 64 * 128 * 2) / 128));
}

TEST_CASE("a product takes as long as its operands, and all bytes go through one shared memory, by hand") {
  // S and dP of three warpgroups with 32 keys each: 16 KiB of Q or dO and 8 KiB of K or V a k-step of 64.
  const auto backward =
      clocks_of("gpu:flash3", long_problem(192), PassName::dkdvdq, load_machine("h200-measured"));
  REQUIRE(backward);
  const double volume = 64.0 * 96 * 192, multiplied = 2 * volume / 4096;
  const double scores = volume * 2 * (1.0 / 64 + 1.0 / 32) / 128,
               sums = volume * 2 * (1.0 / 64 + 1.0 / 96) / 128;
  const double dq = volume * 2 * (1.0 / 64 + 1.0 / 64) / 128;
  REQUIRE(scores > multiplied);
  REQUIRE(sums < multiplied);
  CHECK(backward->step.tensor == doctest::Approx(2 * scores + 2 * multiplied + std::max(multiplied, dq)));
  CHECK(backward->step.operands == doctest::Approx(2 * scores + 2 * sums + dq));
  CHECK(backward->between > backward->step.operands + backward->step.shared);
  CHECK(backward->step.operands + backward->step.shared > backward->step.tensor);
}

TEST_CASE("a few SMs take in no more than their own ways do") {
  const Machine machine = load_machine("h200-measured");
  const Kernel& kernel = find_kernel("gpu:flash3");
  const AttentionProblem problem = long_problem(128);
  const TileProgram program = program_of(kernel, problem, PassName::forward, kernel.default_options(problem));
  const auto few = cta_clocks(kernel, program, machine, 12), all = cta_clocks(kernel, program, machine, 132);
  CHECK(few->step.in == doctest::Approx(2 * 128 * 128 * 2 / 107.0));
  CHECK(all->step.in > few->step.in);
}

TEST_CASE("rows that all CTAs go through are looked up once for the two SMs of a TPC") {
  const Machine machine = load_machine("h200-measured");
  AttentionProblem one_head = long_problem(128);
  one_head.heads = one_head.heads_kv = 1;
  one_head.seqlen_q = one_head.seqlen_k = 32768;
  const auto shared = clocks_of("gpu:flash3", one_head, PassName::dkdvdq, machine);
  const auto apart = clocks_of("gpu:flash3", long_problem(128), PassName::dkdvdq, machine);
  REQUIRE(shared);
  const double in_rate = machine.l2_bytes_per_second->value / 132 / 1.98e9,
               sums = 2.12 * 64 * 128 * 4 / in_rate;
  CHECK(shared->step.l2 - sums == doctest::Approx((2 * 64 * 128 * 2 + 2 * 64 * 4) / in_rate / 2));
  CHECK(apart->step.l2 > shared->step.l2);
  CHECK(shared->step.out == apart->step.out);
}

TEST_CASE("sums of rows that are padded leave by themselves") {
  const Machine machine = load_machine("h200-measured");
  const auto whole = clocks_of("gpu:flash2-mma", long_problem(128), PassName::dkdvdq, machine);
  const auto padded = clocks_of("gpu:flash2-mma", long_problem(96), PassName::dkdvdq, machine);
  REQUIRE(padded);
  CHECK(padded->step.tensor == whole->step.tensor);
  CHECK(padded->step.out < whole->step.out);
  const double in_rate = machine.l2_bytes_per_second->value / 132 / 1.98e9;
  const double added = 3.96 * 64 * 96 * 4 / in_rate;  // all SMs add them at once
  CHECK(padded->alone - whole->alone == doctest::Approx(added).epsilon(0.15));
}

TEST_CASE("head dimensions cost what they are padded to") {
  const Machine machine = load_machine("h200");
  const auto padded = clocks_of("gpu:flash3", long_problem(144), PassName::forward, machine);
  const auto whole = clocks_of("gpu:flash3", long_problem(160), PassName::forward, machine);
  REQUIRE(padded);
  CHECK(padded->step.tensor == whole->step.tensor);
  CHECK(padded->step.shared == whole->step.shared);  // boxes bring zeros
  CHECK(padded->step.in > whole->step.in);           // but fewer lines that two SMs ask for together
}

TEST_CASE("each product of the backward pass costs what its instance computes, by hand") {
  const Machine machine = load_machine("h200");
  struct Padded {
    std::int64_t head_dim;
    double computed;  // head dimensions of the five products together
  };
  // All columns, in panels of 64 and 32; three warpgroups of 64 columns of dK, dV and dQ each; panels of 64
  // and 32 columns of dQ; an instance that the forward pass has and the backward pass has not; whole panels.
  for (const Padded& of : {Padded{160, 5 * 160},
                           {136, 5 * 160},
                           {192, 5 * 192},
                           {80, 4 * 80 + 96},
                           {96, 5 * 96},
                           {112, 5 * 128},
                           {64, 5 * 64},
                           {256, 5 * 256}}) {
    CAPTURE(of.head_dim);
    const Kernel& kernel = find_kernel("gpu:flash3");
    const AttentionProblem problem = long_problem(of.head_dim);
    const TileShape tile =
        program_of(kernel, problem, PassName::dkdvdq, kernel.default_options(problem)).tile;
    const auto clocks = clocks_of("gpu:flash3", problem, PassName::dkdvdq, machine);
    CHECK(clocks->multiplied == doctest::Approx(2.0 * tile.block_m * tile.block_n * of.computed /
                                                machine.tensor_flops_per_clock()));
  }
}

TEST_CASE("products of bf16 tell the clocks of 16 bits where nobody says those of fp16") {
  Machine machine = load_machine("a100-80gb");
  const double known = machine.tensor_flops_per_clock();
  REQUIRE(known > 0);
  machine.peak_flops_per_second["bf16"] = machine.peak_flops_per_second.at("fp16");
  machine.peak_flops_per_second.erase("fp16");
  CHECK(machine.tensor_flops_per_clock() == known);
  machine.peak_flops_per_second.erase("bf16");
  CHECK(machine.tensor_flops_per_clock() == 0);
}

TEST_CASE("products of fp8 take half the clocks, what is summed in two levels is added by threads") {
  const Machine machine = load_machine("h200-measured");
  AttentionProblem fp8 = long_problem(128);
  fp8.dtype = ElementType::fp8e4m3;
  const Kernel& kernel = find_kernel("gpu:flash3");
  const auto clocks = [&](Fp8Sums sums) {
    ProgramOptions options = kernel.default_options(fp8);
    options.fp8_sums = sums;
    return *cta_clocks(kernel, program_of(kernel, fp8, PassName::forward, options), machine, 132);
  };
  const CtaClocks fast = clocks(Fp8Sums::fast), two_level = clocks(Fp8Sums::two_level);
  CHECK(fast.step.tensor == 2.0 * 2 * 128 * 128 * 128 / 8192);
  CHECK(two_level.step.arithmetic - fast.step.arithmetic == doctest::Approx(128.0 * 128 / 128));
}

TEST_CASE("results leave beside what the next block begins with, where CTAs stay") {
  const Machine machine = load_machine("h200-measured");
  const AttentionProblem problem = long_problem(192);
  const auto stays = clocks_of("gpu:flash3", problem, PassName::forward, machine);
  const auto retires = clocks_of("gpu:flash3", problem, PassName::dkdvdq, machine);
  REQUIRE(stays);
  REQUIRE(retires);
  CHECK(stays->end == 0);
  CHECK(stays->once > 1100 + 959);  // the last results leave beside nothing
  CHECK(retires->end > 959);
  CHECK(retires->once == 0);
}

TEST_CASE("a pass by elements waits for the rows that are there") {
  const Kernel& kernel = find_kernel("gpu:flash3");
  const auto clocks = [&](std::int64_t queries) {
    AttentionProblem problem = long_problem(256);
    problem.seqlen_q = queries;
    return clocks_of_elementwise(
        kernel, program_of(kernel, problem, PassName::delta, kernel.default_options(problem)));
  };
  CHECK(clocks(64) == 959 * 64 * 512 / (256 * 16));  // 64 rows of 512 bytes, 256 threads that ask for 16
  CHECK(clocks(4096) == clocks(64));
  CHECK(clocks(20) == 959 * 3);
}

TEST_CASE("what is not known has no clocks") {
  Machine machine = load_machine("h200");
  AttentionProblem capped = long_problem(128);
  capped.score_mods.softcap = 30;
  CHECK_FALSE(clocks_of("gpu:flash3", capped, PassName::forward, machine));
  CHECK_FALSE(clocks_of("cpu:flash2", long_problem(128), PassName::forward, machine));
  const Kernel& flash3 = find_kernel("gpu:flash3");
  ProgramOptions strange = flash3.default_options(long_problem(128));
  strange.set_tile({192, 64});
  CHECK_FALSE(
      cta_clocks(flash3, program_of(flash3, long_problem(128), PassName::forward, strange), machine, 1));
  machine.l2_bytes_per_second.reset();
  CHECK_FALSE(clocks_of("gpu:flash3", long_problem(128), PassName::forward, machine));
}

}  // namespace tilescope
