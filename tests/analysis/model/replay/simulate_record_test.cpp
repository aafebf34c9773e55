// SPDX-License-Identifier: Apache-2.0
// A record that is simulated again keeps what was measured and gets what its own choices give.
#include "analysis/model/replay/simulate_record.hpp"

#include <doctest/doctest.h>

#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr Direction kForwardBackward[] = {Direction::forward, Direction::backward};

TEST_CASE("a record without splits and packed heads has none, whatever its kernel would choose") {
  const Kernel& kernel = find_kernel("gpu:flash3");
  AttentionProblem p{.heads = 16, .heads_kv = 2, .seqlen_q = 20, .seqlen_k = 8192, .head_dim = 128};
  p.dtype = ElementType::fp16;
  ProgramOptions options = kernel.default_options(p);
  REQUIRE(options.splits != SplitPolicy{});
  REQUIRE(options.pack_gqa);
  options.splits = {};
  options.pack_gqa = false;
  const Machine machine = load_machine("h200");
  const Direction forward[] = {Direction::forward};
  const RunEntry run =
      simulate_run(kernel, p, plan_passes(kernel, p, forward, options, machine), machine, {.replay = false});
  CHECK(options_of(run, kernel).splits == SplitPolicy{});
  CHECK(!options_of(run, kernel).pack_gqa);
  CHECK(simulate_again(run, kernel, machine, {.replay = false}) == run);
}

TEST_CASE("simulating a record again reproduces it, whatever its kernel's choices were") {
  const Machine machine = load_machine("a100-40gb");
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(16);
    AttentionProblem p = random.problem(tile);
    p.dtype = ElementType::fp16;
    if (seed % 2 == 0) p = random.masked(p);
    for (const Kernel& kernel : cpu_kernels()) {
      CAPTURE(kernel.name);
      ProgramOptions options = ProgramOptions::with_tile(tile);
      options[PassName::dq].tile = random.tile(16);
      options.order = static_cast<TileOrder>(random.between(0, 2));
      options.scan = static_cast<Scan>(random.between(0, 2));
      if (!kernel.backward_orders.empty()) {
        const int last = static_cast<int>(kernel.backward_orders.size()) - 1;
        options.backward = kernel.backward_orders[static_cast<std::size_t>(random.between(0, last))];
      }
      const auto passes = plan_passes(kernel, p, kForwardBackward, options, machine);
      RunEntry run = simulate_run(kernel, p, passes, machine);
      for (PassRecord& pass : run.passes) pass.simulated->l2_curve.clear();
      run.passes.front().measured = MeasuredBytes{1, 2, 3, 4};
      RunEntry forgotten = run;
      for (PassRecord& pass : forgotten.passes) {
        pass.simulated.reset();
        pass.closed_form.reset();
        pass.flops = 0;
      }
      CHECK(simulate_again(forgotten, kernel, machine) == run);
    }
  }
}

TEST_CASE("a run is simulated again with its own pages") {
  const Machine machine = load_machine("h200");
  const Kernel& kernel = cpu_kernels().back();
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 512;
  const auto passes = plan_passes(kernel, p, kForwardBackward, kernel.default_options(p), machine);
  for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
    RunEntry run = simulate_run(kernel, p, passes, machine, {.pages = pages, .l2_curve = false});
    CHECK(run.pages == pages);
    CHECK(simulate_again(run, kernel, machine) == run);
    for (const PassRecord& pass : run.passes) {
      CHECK(pass.simulated->dram_read_range.has_value() == (pages == PagePlacement::random));
    }
  }
}

TEST_CASE("a simulation names its measurement, holds nothing measured, and is laid beside it again") {
  const Machine machine = load_machine("a100-40gb");
  const Kernel& kernel = cpu_kernels().back();
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 256;
  const auto passes = plan_passes(kernel, p, kForwardBackward, kernel.default_options(p), machine);
  RunRecord measured = start_record({"tilescope", "profile"});
  measured.when = "2026-01-31T00:00:00Z";
  measured.runs = {simulate_run(kernel, p, passes, machine, {.replay = false})};
  RunEntry& run = measured.runs.front();
  run.l2 = "cold";
  run.device_bytes["forward"] = 7;
  for (PassRecord& pass : run.passes) {
    pass.measured = MeasuredBytes{1, 2, 3, 4};
    pass.time = TimeRecord{1, 1, 0, {1}};
    pass.counters["dram__bytes_read.sum"] = std::int64_t{3};
  }
  RunRecord simulation = start_record({"tilescope", "simulate"});
  simulation.simulation_of =
      SimulationSource{"m.json", measured.argv, measured.when, measured.git, "a100-40gb"};
  simulation.runs = {without_measurements(simulate_again(run, kernel, machine))};
  for (const PassRecord& pass : simulation.runs.front().passes) {
    CHECK(pass.simulated.has_value());
    CHECK(!pass.measured.has_value());
    CHECK(!pass.time.has_value());
    CHECK(pass.counters.empty());
  }
  const RunRecord read = parse_run_record("text", to_json_text(simulation));
  CHECK(read == simulation);

  RunRecord other = measured;
  other.when = "2026-02-28T00:00:00Z";  // the same command once more
  std::vector<RunRecord> records = {read, other, measured};
  join_simulations(records);
  CHECK(records[0].runs.empty());
  CHECK(records[1] == other);
  for (std::size_t i = 0; i < run.passes.size(); ++i) {
    CHECK(records[2].runs[0].passes[i].measured == run.passes[i].measured);
    CHECK(records[2].runs[0].passes[i].simulated == simulation.runs[0].passes[i].simulated);
  }
  std::vector<RunRecord> alone = {read, other};
  join_simulations(alone);
  CHECK(alone[0] == read);
}

TEST_CASE("a simulation stands beside what its own device measured, though another ran the same command") {
  const Kernel& kernel = cpu_kernels().back();
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 256;
  const auto measured_on = [&](const char* device) {
    const Machine machine = load_machine("h200");
    const auto passes = plan_passes(kernel, p, kForwardBackward, kernel.default_options(p), machine);
    RunRecord record = start_record({"tilescope", "profile"});
    record.when = "2026-01-31T00:00:00Z";
    record.machine.name = device;
    record.runs = {simulate_run(kernel, p, passes, machine, {.replay = false})};
    return record;
  };
  const auto simulated_on = [&](const char* machine, const RunRecord& measured) {
    RunRecord record = start_record({"tilescope", "simulate"});
    record.simulation_of = SimulationSource{"m.json", measured.argv, measured.when, measured.git, machine};
    record.runs = {without_measurements(
        simulate_again(measured.runs.front(), kernel, with_measured_ceilings(load_machine(machine))))};
    return record;
  };
  const RunRecord h200 = measured_on("NVIDIA H200"), h100 = measured_on("NVIDIA H100 80GB HBM3");
  std::vector<RunRecord> records = {h100, h200, simulated_on("h200", h200), simulated_on("h100-sxm", h100)};
  join_simulations(records);
  CHECK(records[0].runs[0].passes[0].simulated->machine.starts_with("h100-sxm"));
  CHECK(records[1].runs[0].passes[0].simulated->machine.starts_with("h200"));
  CHECK(records[2].runs.empty());
  CHECK(records[3].runs.empty());
  // Of another device alone it stands for itself.
  std::vector<RunRecord> other = {h100, simulated_on("h200", h100)};
  join_simulations(other);
  CHECK(other[0] == h100);
  CHECK(other[1].runs.size() == 1);
}

TEST_CASE("a record of other passes is refused") {
  const Machine machine = load_machine("h200");
  const Kernel& kernel = cpu_kernels().back();
  AttentionProblem p;
  RunEntry run =
      simulate_run(kernel, p, plan_passes(kernel, p, kForwardBackward, kernel.default_options(p), machine),
                   machine, {.replay = false});
  run.passes.pop_back();
  CHECK_THROWS_AS(simulate_again(run, kernel, machine), BadInput);
}

}  // namespace
}  // namespace tilescope
