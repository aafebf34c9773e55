// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/pass_time.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "analysis/model/counts/direction_total.hpp"
#include "analysis/model/replay/simulate_record.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/records/run_record.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

double seconds_of(const char* name, std::int64_t seqlen, Direction direction, const Machine& machine) {
  const AttentionProblem problem{.batch = 1,
                                 .heads = 16,
                                 .heads_kv = 16,
                                 .seqlen_q = seqlen,
                                 .seqlen_k = seqlen,
                                 .head_dim = 128,
                                 .dtype = ElementType::fp16};
  const Kernel& kernel = find_kernel(name);
  const auto passes =
      plan_passes(kernel, problem, std::span(&direction, 1), kernel.default_options(problem), machine);
  const RunEntry run = simulate_run(kernel, problem, passes, machine, {.replay = false});
  return direction_total(run, direction).value().predicted.value().seconds;
}

/// |log(predicted / measured)| of a record's directions that have a prediction, sorted.
std::vector<double> misses_of(const std::string& path, const std::string& kernel) {
  const Machine machine = load_machine("h200-measured");
  std::vector<double> misses;
  for (const RunEntry& run : read_run_record(path).runs) {
    if (run.kernel != kernel) continue;
    const RunEntry predicted = simulate_apart(run, find_kernel(kernel), machine, {.replay = false});
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const auto measured = direction_total(run, direction);
      const auto total = direction_total(predicted, direction);
      if (!measured || !total->predicted) continue;
      misses.push_back(std::abs(std::log(total->predicted->seconds / measured->time->median_s)));
    }
  }
  std::sort(misses.begin(), misses.end());
  return misses;
}

}  // namespace

TEST_CASE("how long the CTA of a ragged last q tile takes for a step, over a whole one") {
  // An H200, 16384 keys: what the ragged tiles of as many heads as run at once take longer, over what whole
  // ones do.
  const struct {
    const char* kernel;
    std::int64_t head_dim;
    TileShape tile;
    std::int64_t rows;  // of the last tile
    double measured;
  } passes[] = {{"gpu:flash3", 192, {128, 64}, 34, 0.62},    {"gpu:flash3", 96, {192, 96}, 34, 0.62},
                {"gpu:flash3", 96, {192, 96}, 100, 0.83},    {"gpu:flash3", 64, {256, 64}, 34, 0.53},
                {"gpu:flash3", 64, {256, 64}, 100, 0.71},    {"gpu:flash2-mma", 128, {128, 64}, 78, 1.12},
                {"gpu:flash2-mma", 64, {128, 128}, 78, 1.25}};
  const Machine machine = load_machine("h200-measured");
  for (const auto& pass : passes) {
    CAPTURE(pass.kernel);
    CAPTURE(pass.head_dim);
    CAPTURE(pass.rows);
    AttentionProblem problem{.batch = 1,
                             .heads = 132,
                             .heads_kv = 1,
                             .seqlen_k = 16384,
                             .head_dim = pass.head_dim,
                             .dtype = ElementType::fp16};
    const Kernel& kernel = find_kernel(pass.kernel);
    const auto pace = [&](std::int64_t queries) {
      problem.seqlen_q = queries;
      const auto options = ProgramOptions::with_tile(pass.tile);
      const TileProgram program = kernel.programs(Direction::forward, problem, options).front();
      return ragged_pace(kernel, program, machine, launched_together(kernel, program, machine));
    };
    CHECK(pace(4 * pass.tile.block_m) == 1);
    CHECK(pace(pass.tile.block_m) == 1);
    CHECK(pace(pass.rows) == 1);  // no other block to compare with
    CHECK(std::abs(pace(4 * pass.tile.block_m + pass.rows) - pass.measured) < 0.13);
  }
}

TEST_CASE("a CTA begins where one has ended, by hand") {
  CtaClocks clocks;
  clocks.begin = 10;
  clocks.between = 2;
  clocks.end = 5;
  const auto end_of_ctas = [](const std::vector<double>& tiles, std::int64_t slots, const CtaClocks& of,
                              HandOut hand_out) {
    std::vector<BlockSteps> steps;
    for (const double made : tiles) steps.push_back({.computed = made});
    return tilescope::end_of_ctas(steps, slots, of, hand_out);
  };
  constexpr auto kRetires = HandOut::to_who_retires, kEnds = HandOut::to_who_ends;
  CHECK(end_of_ctas({10, 1, 1}, 2, clocks, kRetires) == 35);  // beside the long one two short ones: 17 + 17
  CHECK(end_of_ctas({1, 1, 10}, 2, clocks, kRetires) == 17 + 35);
  CHECK(end_of_ctas({0, 0}, 1, clocks, kRetires) == 10);  // who sees nothing stores
  CHECK(end_of_ctas({10, 1, 1}, 3, clocks, kRetires) == 35);
  CHECK(end_of_ctas({10, 1, 1}, 2, clocks, kEnds) == 35);
  // 0 3 4 and 1 2 5: the third long one meets the second.
  CHECK(end_of_ctas({1, 10, 10, 1, 1, 1}, 2, clocks, HandOut::there_and_back) == 35 + 35 + 17);
}

TEST_CASE("a block takes what its SM, its longest part and its tiles take, by hand") {
  CtaClocks clocks;
  clocks.between = 10;
  clocks.masked = 4;
  clocks.alone = 6;
  clocks.masked_alone = 3;
  clocks.loaded = 2;
  // Four parts that see the same: the SM is full.
  CHECK(clocks_of_steps({8, 2, 8, 2, 8}, clocks) == 8 * 10 + 2 * 4);
  // One part of four sees something: as long as it takes alone, not a quarter of the time of all.
  CHECK(clocks_of_steps({2, 0.5, 8, 2, 8}, clocks) == 8 * 6 + 2 * 3);
  // Each part sees other tiles: all of them have to come.
  CHECK(clocks_of_steps({1, 0, 1, 0, 20}, clocks) == 20 * 2);
}

TEST_CASE("a window costs more than as many full tiles, ragged rows no more than whole ones") {
  const Machine machine = load_machine("h200");
  const Kernel& kernel = find_kernel("gpu:flash3");
  const Direction direction = Direction::forward;
  const auto seconds = [&](const AttentionProblem& problem) {
    const auto passes =
        plan_passes(kernel, problem, std::span(&direction, 1), kernel.default_options(problem), machine);
    const RunEntry run = simulate_run(kernel, problem, passes, machine, {.replay = false});
    return direction_total(run, direction).value().predicted.value().seconds;
  };
  AttentionProblem problem{.batch = 1,
                           .heads = 33,  // whose tiles are eight for each SM
                           .heads_kv = 33,
                           .seqlen_q = 8192,
                           .seqlen_k = 8192,
                           .head_dim = 64,
                           .dtype = ElementType::fp16};
  const double full = seconds(problem);
  problem.seqlen_q -= 1;  // one row of one tile
  CHECK(seconds(problem) / full == doctest::Approx(1).epsilon(0.005));
  problem.seqlen_q += 1;
  problem.window_left = 64;
  problem.window_right = 0;
  const double window = seconds(problem);
  problem.window_left = 1024;
  // Per key that a row sees, a band of two tiles, both masked, costs more than one of seventeen.
  CHECK(window / 65 > 2 * seconds(problem) / 1025);
}

TEST_CASE("packed heads cost what as many rows of one head cost") {
  Machine machine = load_machine("h200-measured");
  machine.l2_bytes_per_second->value *= 8;  // nobody waits for tiles
  const Kernel& kernel = find_kernel("gpu:flash3");
  const Direction direction = Direction::forward;
  const auto seconds = [&](std::int64_t heads, std::int64_t queries, bool packed) {
    const AttentionProblem problem{.batch = 24,
                                   .heads = heads,
                                   .heads_kv = 3,
                                   .seqlen_q = queries,
                                   .seqlen_k = 8192,
                                   .head_dim = 96,
                                   .dtype = ElementType::fp16};
    ProgramOptions options = kernel.default_options(problem);
    options.set_tile(direction, {128, 128});
    options.splits = {};
    options.pack_gqa = packed;
    const auto passes = plan_passes(kernel, problem, std::span(&direction, 1), options, machine);
    const RunEntry run = simulate_run(kernel, problem, passes, machine, {.replay = false});
    return direction_total(run, direction).value().predicted.value().seconds;
  };
  CHECK(seconds(6, 512, true) / seconds(3, 1024, false) == doctest::Approx(1).epsilon(0.02));
}

TEST_CASE("where keys are split a CTA has the tiles of its split, whichever rows skip some") {
  const Machine machine = load_machine("h200-measured");
  const Kernel& kernel = find_kernel("gpu:flash3");
  const Direction direction = Direction::forward;
  for (const std::int64_t head_dim : {80, 128}) {  // with parts that skip, and without
    const AttentionProblem problem{
        .seqlen_q = 384, .seqlen_k = 65536, .head_dim = head_dim, .dtype = ElementType::fp16};
    const auto seconds = [&](int splits) {
      ProgramOptions options = kernel.default_options(problem);
      options.splits = {SplitPolicy::Kind::number, splits};
      const auto passes = plan_passes(kernel, problem, std::span(&direction, 1), options, machine);
      const RunEntry run = simulate_run(kernel, problem, passes, machine, {.replay = false});
      return direction_total(run, direction).value().predicted.value().seconds;
    };
    CAPTURE(head_dim);
    CHECK(seconds(16) < 0.25 * seconds(1));
    CHECK(seconds(16) > seconds(1) / 16);
  }
}

TEST_CASE("more keys, slower memory and fewer SMs take longer") {
  const Machine machine = load_machine("h200-measured");
  for (const char* kernel : {"gpu:flash3", "gpu:flash2-mma", "gpu:flash3-basic"}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      CAPTURE(kernel);
      double before = 0;
      for (const std::int64_t seqlen : {512, 1024, 2048, 4096}) {
        const double seconds = seconds_of(kernel, seqlen, direction, machine);
        CHECK(seconds > before);
        before = seconds;
      }
      Machine slower = machine;
      slower.dram_bytes_per_second.value /= 8;
      CHECK(seconds_of(kernel, 1024, direction, slower) > seconds_of(kernel, 1024, direction, machine));
      Machine smaller = machine;
      smaller.sm_count.value /= 2;
      smaller.l2_bytes_per_second->value /= 2;  // an SM's share stays
      const double twice =
          seconds_of(kernel, 4096, direction, smaller) / seconds_of(kernel, 4096, direction, machine);
      CHECK(twice > 1.7);
      CHECK(twice < 2.1);
    }
  }
}

TEST_CASE("power bounds the clock of the work, whatever was before it") {
  const Machine machine = load_machine("h200-measured");
  const Kernel& kernel = find_kernel("gpu:flash3");
  const Direction direction = Direction::forward;
  const auto clock = [&](std::int64_t heads) {
    const AttentionProblem problem{.batch = 1,
                                   .heads = heads,
                                   .heads_kv = heads,
                                   .seqlen_q = 4224,  // 33 tiles of 128 x 128: four heads are one a CTA
                                   .seqlen_k = 4224,
                                   .head_dim = 128,
                                   .dtype = ElementType::fp16};
    const auto passes =
        plan_passes(kernel, problem, std::span(&direction, 1), kernel.default_options(problem), machine);
    const RunEntry run = simulate_run(kernel, problem, passes, machine, {.replay = false});
    return run.passes.front().predicted.value().sm_clock_hz;
  };
  CHECK(clock(4) < 0.85 * machine.boost_hz());
  CHECK(clock(4) / clock(64) == doctest::Approx(1).epsilon(0.03));
}

TEST_CASE("a machine without an L2 rate has a bound and no prediction") {
  Machine machine = load_machine("rtx-5070-ti");
  const AttentionProblem problem{.batch = 1,
                                 .heads = 16,
                                 .heads_kv = 16,
                                 .seqlen_q = 1024,
                                 .seqlen_k = 1024,
                                 .head_dim = 128,
                                 .dtype = ElementType::fp16};
  const Kernel& kernel = find_kernel("gpu:flash2-mma");
  const Direction direction = Direction::forward;
  const auto passes =
      plan_passes(kernel, problem, std::span(&direction, 1), kernel.default_options(problem), machine);
  CHECK_FALSE(simulate_run(kernel, problem, passes, machine, {.replay = false}).passes.front().predicted);
}

TEST_CASE("the problems that the model was made with are predicted as it says") {
  const std::string folder = std::string(TILESCOPE_SOURCE_DIR) + "/reports/data/bench-h200-";
  for (const char* kernel : {"gpu:flash3", "gpu:flash2-mma"}) {
    std::vector<double> misses = misses_of(folder + "flash3-forward.json.gz", kernel);
    const std::vector<double> backward = misses_of(folder + "flash3-backward.json.gz", kernel);
    misses.insert(misses.end(), backward.begin(), backward.end());
    std::sort(misses.begin(), misses.end());
    CAPTURE(kernel);
    REQUIRE(misses.size() >= 60);
    const bool first = std::string(kernel) == "gpu:flash3";
    CHECK(misses[misses.size() / 2] < (first ? 0.035 : 0.085));
    CHECK(misses[misses.size() * 9 / 10] < (first ? 0.102 : 0.145));
  }
}

TEST_CASE("forward passes in fp8 of drawn problems are predicted as it says") {
  for (const char* sums : {"fast", "two-level"}) {
    CAPTURE(sums);
    const std::vector<double> misses =
        misses_of(std::string(TILESCOPE_SOURCE_DIR) + "/reports/prediction/times-h200-fp8-" + sums +
                      "-1795734696.json.gz",
                  "gpu:flash3");
    REQUIRE(misses.size() == 30);
    CHECK(misses[misses.size() / 2] < 0.092);  // 0.086 with the replay
    CHECK(misses[misses.size() * 9 / 10] < 0.16);
  }
}

TEST_CASE("ordered passes of drawn problems are predicted as it says, their waits among what they take") {
  const std::vector<double> misses = misses_of(
      std::string(TILESCOPE_SOURCE_DIR) + "/reports/prediction/times-h200-ordered-1795779727.json.gz",
      "gpu:flash3");
  REQUIRE(misses.size() == 40);
  CHECK(misses[misses.size() / 2] < 0.112);
  CHECK(misses[misses.size() * 9 / 10] < 0.27);  // 0.21 with the replay's DRAM bytes
}

}  // namespace tilescope
