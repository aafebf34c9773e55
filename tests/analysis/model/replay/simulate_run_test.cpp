// SPDX-License-Identifier: Apache-2.0
// A run on a machine model as an entry of a record.
#include "analysis/model/replay/simulate_run.hpp"

#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw BadInput("no such kernel");
}

constexpr Direction kBoth[] = {Direction::forward, Direction::backward};

TEST_CASE("every pass of every kernel is counted and replayed, and both agree") {
  const Machine machine = load_machine("h200");
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const AttentionProblem p = random.problem({64, 64});
    for (const Kernel& kernel : cpu_kernels()) {
      CAPTURE(kernel.name);
      const auto passes = plan_passes(kernel, p, kBoth, kernel.default_options(p), machine);
      std::int64_t ctas = 0, retired = 0;
      for (const PlannedPass& pass : passes) ctas += pass.program.num_ctas();
      SimulationOptions options{.l2_curve = true};
      options.on_retired = [&] { ++retired; };
      const RunEntry run = simulate_run(kernel, p, passes, machine, options);
      CHECK(retired == ctas);
      CHECK(run.kernel == kernel.name);
      REQUIRE(run.passes.size() == passes.size());
      for (const PassRecord& pass : run.passes) {
        CAPTURE(pass.name);
        REQUIRE(pass.simulated.has_value());
        CHECK(pass.simulated->sm_l2_read_bytes == pass.closed_form->sm_l2_read_bytes);
        CHECK(pass.simulated->sm_l2_write_bytes == pass.closed_form->sm_l2_write_bytes);
        CHECK(pass.simulated->machine == "h200");
        CHECK(pass.executed_flops >= pass.flops);
        // The curve ends where the L2 is large enough for what is compulsory.
        const L2CurvePoint& last = pass.simulated->l2_curve.back();
        CHECK(last.dram_read_bytes == pass.closed_form->compulsory_read_bytes);
        CHECK(last.dram_write_bytes == pass.closed_form->compulsory_write_bytes);
        CHECK(std::is_sorted(pass.simulated->l2_curve.begin(), pass.simulated->l2_curve.end(),
                             [](const auto& a, const auto& b) { return a.l2_bytes < b.l2_bytes; }));
      }
    }
  }
}

TEST_CASE("a kernel is launched as on the chip of the machine, on one that nobody knows as on sm_90") {
  Kernel kernel = kernel_named("cpu:flash2");
  kernel.launch_shape = [](const TileProgram& /*program*/, const Chip& chip) -> LaunchShape {
    return {32, 1024, chip.compute_capability / 10};
  };
  const AttentionProblem problem;
  const TileProgram program =
      kernel.programs(Direction::forward, problem, kernel.default_options(problem)).front();
  for (const auto& [name, ctas_per_sm] : {std::pair("a100-40gb", 8), std::pair("h200", 9)}) {
    Machine machine = load_machine(name);
    CAPTURE(machine.name);
    CHECK(launched_together(kernel, program, machine) == ctas_per_sm * machine.sm_count.value);
    machine.chip = "unheard of";
    CHECK(launched_together(kernel, program, machine) == 9 * machine.sm_count.value);
  }
}

TEST_CASE("registers that the kernel spills are written, unless it is said what a CTA spills") {
  Kernel kernel = kernel_named("cpu:flash2");
  kernel.launch_shape = [](const TileProgram& /*program*/, const Chip& /*chip*/) -> LaunchShape {
    return {.threads_per_cta = 128, .spilled_bytes = 32};
  };
  const Machine machine = load_machine("h200");
  const AttentionProblem p{.seqlen_q = 512, .seqlen_k = 512};  // that the L2 keeps: of one wave
  const auto passes =
      plan_passes(kernel, p, std::array{Direction::forward}, kernel.default_options(p), machine);
  const auto written = [&](const SimulationOptions& options) {
    const PassRecord pass = simulate_run(kernel, p, passes, machine, options).passes.front();
    return pass.simulated->dram_write_bytes - pass.closed_form->compulsory_write_bytes;
  };
  const std::int64_t ctas = passes.front().program.num_ctas();
  CHECK(written({}) == ctas * 128 * 32);
  CHECK(written({.spilled_cta_bytes = 0}) == 0);
  CHECK(written({.spilled_cta_bytes = 100}) == ctas * 100);
}

TEST_CASE("flags that a pass clears for the next are written, a sector of each of its CTAs") {
  const Kernel& kernel = find_kernel("gpu:flash3");
  const Machine machine = load_machine("h200");
  AttentionProblem p{.heads = 8, .heads_kv = 8, .seqlen_q = 20000, .seqlen_k = 20000, .head_dim = 128};
  p.dtype = ElementType::fp16;
  for (const bool in_order : {false, true}) {
    p.causal = in_order;
    const auto passes =
        plan_passes(kernel, p, std::array{Direction::backward}, kernel.default_options(p), machine);
    const std::array delta = {passes.front()};
    REQUIRE((delta[0].program.dq_start == DqStart::in_order) == in_order);
    const PassRecord pass = simulate_run(kernel, p, delta, machine).passes.front();
    CHECK(pass.simulated->dram_write_bytes - pass.closed_form->compulsory_write_bytes ==
          (in_order ? 32 * delta[0].program.num_ctas() : 0));
  }
}

TEST_CASE("whoever is told of progress can end a simulation") {
  struct Enough {};
  const Machine machine = load_machine("h200");
  const Kernel& kernel = cpu_kernels().front();
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 16384;  // more than the L2 holds: several launches side by side
  p.heads = p.heads_kv = 16;
  const auto passes = plan_passes(kernel, p, kBoth, kernel.default_options(p), machine);
  SimulationOptions options;
  options.on_retired = [] { throw Enough{}; };
  CHECK_THROWS_AS(simulate_run(kernel, p, passes, machine, options), Enough);
}

TEST_CASE("the L2 and the residency can be given, without replay only formulas are left") {
  const Machine machine = load_machine("a100-40gb");
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 2048;
  const Kernel& kernel = kernel_named("cpu:flash2");
  const auto passes = plan_passes(kernel, p, kBoth, kernel.default_options(p), machine);
  SimulationOptions options;
  options.l2_bytes = 0;
  options.ctas_per_sm = 3;
  const RunEntry run = simulate_run(kernel, p, passes, machine, options);
  CHECK(run.passes[0].simulated->l2_bytes == 0);
  CHECK(run.passes[0].simulated->co_resident_ctas == 3 * 108);
  CHECK(run.passes[0].simulated->dram_read_bytes == run.passes[0].closed_form->sm_l2_read_bytes);
  CHECK(run.passes[0].simulated->hit_rate == 0);
  options.replay = false;
  const RunEntry counted = simulate_run(kernel, p, passes, machine, options);
  CHECK_FALSE(counted.passes[0].simulated.has_value());
  CHECK(counted.passes[0].closed_form == run.passes[0].closed_form);
}

TEST_CASE("head-swizzled sections hold the heads whose K and V share the usable L2") {
  const Machine machine = load_machine("h200");  // 32 MiB usable
  AttentionProblem p;
  p.heads = 32;
  p.heads_kv = 8;
  p.seqlen_q = p.seqlen_k = 16384;
  p.head_dim = 128;
  p.dtype = ElementType::fp16;  // 8 MiB of K and V a head
  const Kernel& kernel = kernel_named("cpu:flash2");
  ProgramOptions options = kernel.default_options(p);
  options.order = TileOrder::head_swizzled;
  const Direction forward[] = {Direction::forward};
  // 4 key/value heads, each read by 4 query heads.
  CHECK(plan_passes(kernel, p, forward, options, machine)[0].program.grid.swizzled_heads == 16);
  const auto passes = plan_passes(kernel, p, forward, options, machine);
  CHECK(simulate_run(kernel, p, passes, machine, {.replay = false}).order == TileOrder::head_swizzled);
  options.swizzled_heads = 3;
  CHECK(plan_passes(kernel, p, forward, options, machine)[0].program.grid.swizzled_heads == 3);
}

}  // namespace
}  // namespace tilescope
