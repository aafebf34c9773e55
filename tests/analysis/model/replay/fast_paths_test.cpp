// SPDX-License-Identifier: Apache-2.0
// What the replay does at once, keeps in constant time, or leaves out must not change a byte: it is held to a
// plain one on random programs and schedules.
#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/cache/tile_lines.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/analysis/model/replay/plain_replay.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

using testing::ProblemGenerator;

std::vector<TileProgram> random_programs(ProblemGenerator& random, int seed) {
  const int slices = seed % 5 == 4 ? 3 : 1;
  const TileShape tile = random.tile_of_slices(slices, 16 / slices);
  AttentionProblem p = random.problem(tile);
  p.seqlen_q *= random.between(1, 5);
  p.seqlen_k *= random.between(1, 5);
  if (random.chance(0.5)) {  // no mask: CTAs side by side have as many steps
    p.causal = false;
    p.window_left = p.window_right = {};
  }
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.order = static_cast<TileOrder>(random.between(0, 2));
  options.swizzled_heads = random.between(1, 3);
  options.scan = static_cast<Scan>(random.between(0, 2));
  options.diagonal_slices = slices;
  options.ctas_per_wave = random.between(1, 4);
  options.dq_start = static_cast<DqStart>(seed % 3);
  options.work_counter = seed % 2 == 0;
  if (random.chance(0.3)) options.set_query_splits(random.between(2, 9));
  for (PassOptions& pass : options.passes) pass.row_reads = random.between(1, 2);
  constexpr int kChoices = std::size(testing::kAlgorithmChoices);
  if (slices == 1 && seed % 4 == 1) p = random.masked(p);
  if (random.chance(0.25)) p = random.padded(p);
  const bool by_boxes = p.key_lengths.empty() && seed % 3 == 0;
  if (by_boxes) p.head_dim = 4 * random.between(1, 12);
  testing::AlgorithmChoice choice = testing::kAlgorithmChoices[seed % kChoices];
  if (choice.backward == BackwardOrder::fused && seed % 16 < 8) choice.backward = BackwardOrder::ordered;
  const bool forward = choice.algorithm == Algorithm::flash2 && choice.direction == Direction::forward;
  if (forward && !by_boxes) testing::draw_splits(options, tile, random);
  if (seed % 4 == 1) p = random.modified(p);
  auto programs = testing::programs_of(choice, p, options);
  for (TileProgram& program : programs) {
    if (by_boxes) testing::draw_boxes(program, random);
  }
  return programs;
}

std::vector<SmGroup> random_groups(ProblemGenerator& random) {
  std::vector<SmGroup> groups;
  for (int group = random.between(1, 4); group > 0; --group) {
    groups.push_back({random.between(1, 5), random.between(0, 1)});
  }
  return groups;
}

CtaSchedule random_schedule(ProblemGenerator& random, const std::vector<SmGroup>& groups) {
  CtaSchedule schedule{.ctas_per_sm = random.between(1, 3), .sm_groups = groups};
  std::int64_t sms = 0;
  for (const SmGroup& group : groups) sms += group.sms;
  schedule.co_resident_ctas = schedule.ctas_per_sm * (sms > 0 ? sms : random.between(1, 12));
  if (random.chance(0.3)) schedule.progress.younger_rate = 0.01 * random.between(3, 100);
  if (random.chance(0.3)) schedule.progress.alone_rate = 0.01 * random.between(50, 2000);
  if (random.chance(0.2)) schedule.progress.step_cv = 0.1 * random.between(1, 6);
  if (random.chance(0.5)) schedule.progress.clock_cv = 0.05 * random.between(1, 4);
  if (random.chance(0.3)) schedule.progress.tpc_cv = 0.05 * random.between(1, 4);
  if (random.chance(0.2)) schedule.ragged_pace = 0.1 * random.between(5, 15);
  schedule.launch = static_cast<std::size_t>(random.between(0, 5));
  return schedule;
}

TEST_CASE("CTAs that go as one, and turns out of buckets, make the steps of CTAs that go one by one") {
  std::int64_t together = 0;
  for (int seed = 0; seed < 240; ++seed) {
    CAPTURE(seed);
    ProblemGenerator random(static_cast<unsigned>(seed));
    const std::vector<TileProgram> programs = random_programs(random, seed);
    const CtaSchedule schedule =
        random_schedule(random, random.chance(0.7) ? random_groups(random) : std::vector<SmGroup>{});
    for (const TileProgram& program : programs) {
      CAPTURE(to_string(program.name));
      std::int64_t retired = 0;
      CoResidentCtas ctas(program, schedule, [&] { ++retired; });
      testing::PlainCtas plain(program, schedule);
      CtaRun run;
      AccessGroup group;
      while (ctas.next(run)) {
        together += run.ctas - 1;
        for (int cta = 0; cta < run.ctas; ++cta) {
          const AccessGroup its = run.group_of(cta, program.axis);
          const testing::PlainStep step{its.operands.data(), its.batch,   its.head,
                                        its.m_block,         its.n_block, ctas.partition()};
          REQUIRE(plain.next(group) == step);
        }
      }
      CHECK_FALSE(plain.next(group));
      CHECK(retired == program.num_ctas());
    }
  }
  CHECK(together > 1000);
}

TEST_CASE("the sampled lines are those whose set is in the sample") {
  const SplitL2Shape h200 = *load_machine("h200").split_l2();
  const SplitL2Shape smallest{128 * 128 * 4, 4, {}};
  for (const SplitL2Shape& shape : {h200, smallest}) {
    LineSample sample(shape);
    ProblemGenerator random(1);
    for (int piece = 0; piece < 200; ++piece) {
      CAPTURE(piece);
      const std::int64_t address = std::int64_t{random.between(0, 1 << 26)} * random.between(1, 64);
      const std::int64_t bytes = random.between(1, random.chance(0.1) ? 1 << 22 : 1 << 12);
      std::vector<testing::PlainLine> lines;
      sample.for_each_line(address, bytes, [&lines](std::int64_t at, LineSample::Line line) {
        lines.push_back({at, line.set, line.home});
      });
      CHECK(lines == testing::plain_lines(shape, address, bytes));
    }
  }
}

TEST_CASE("a split L2 moves what a plain one moves") {
  std::int64_t kept_all = 0, read_again = 0, written_again = 0;
  for (int seed = 0; seed < 160; ++seed) {
    CAPTURE(seed);
    ProblemGenerator random(static_cast<unsigned>(seed));
    const std::vector<TileProgram> programs = random_programs(random, seed);
    const std::vector<SmGroup> groups = random_groups(random);
    const CtaSchedule schedule = random_schedule(random, groups);
    SplitL2Shape shape{0, random.chance(0.4) ? 20 : random.between(1, 4), groups};
    shape.partition_bytes = 128 * SplitL2Shape::kLineBytes * shape.ways * random.between(1, 3);
    if (random.chance(0.7))
      shape.dirty_ways = random.between(1, static_cast<int>(std::min<std::int64_t>(shape.ways, 2)));
    const auto pages = random.chance(0.3) ? PagePlacement::random : PagePlacement::contiguous;
    for (const TileProgram& program : programs) {
      CAPTURE(to_string(program.name));
      const SplitL2Traffic traffic = simulate_split_l2(program, schedule, shape, pages);
      const SplitL2Traffic plain = testing::plain_split_l2(program, schedule, shape, pages);
      CHECK(traffic == plain);
      const TileNumbering numbers(program);
      kept_all += TileLines(program, numbers, shape, std::nullopt).all_fit(shape);
      const ClosedFormBytes closed = closed_form_bytes(program);
      CHECK(traffic.sm_l2_read_bytes() == closed.sm_l2_read_bytes);
      CHECK(traffic.sm_l2_write_bytes() == closed.sm_l2_write_bytes);
      read_again += traffic.dram_read_bytes > closed.compulsory_read_bytes;
      written_again += traffic.dram_write_bytes > closed.compulsory_write_bytes;
    }
  }
  // Each way is gone.
  CHECK(kept_all > 30);
  CHECK(read_again > 30);
  CHECK(written_again > 20);
}

TEST_CASE("steps whose lines do not fit their sets are made by every CTA") {
  AttentionProblem p{.batch = 1, .heads = 1, .seqlen_q = 16 * 8, .seqlen_k = 16 * 4, .head_dim = 256};
  const auto programs =
      build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({16, 16}));
  // K and V of a tile are 256 lines, for 128 sets of one line.
  const SplitL2Shape shape{128 * SplitL2Shape::kLineBytes, 1, {{4, 0}, {4, 1}}};
  const CtaSchedule schedule{.co_resident_ctas = 8, .sm_groups = shape.sm_groups};
  const SplitL2Traffic traffic = simulate_split_l2(programs.front(), schedule, shape);
  CHECK(traffic == testing::plain_split_l2(programs.front(), schedule, shape, PagePlacement::contiguous));
  CHECK(traffic.dram_read_bytes > 2 * closed_form_bytes(programs.front()).compulsory_read_bytes);
}

TEST_CASE("a step may push out its own lines where these are to go first") {
  const AttentionProblem p{.batch = 1, .heads = 1, .seqlen_q = 16 * 8, .seqlen_k = 4 * 1500, .head_dim = 32};
  TileProgram program =
      build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({16, 4})).front();
  program.boxes = {{TensorName::k, 4, 128, true}};
  const SplitL2Shape shape{128 * SplitL2Shape::kLineBytes * 20, 20, {{4, 0}, {4, 1}}};
  const CtaSchedule schedule{.co_resident_ctas = 8, .sm_groups = shape.sm_groups};
  CHECK(simulate_split_l2(program, schedule, shape) ==
        testing::plain_split_l2(program, schedule, shape, PagePlacement::contiguous));
}

TEST_CASE("an LRU cache of one size moves what the stack says of that size") {
  for (int seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    ProblemGenerator random(static_cast<unsigned>(seed));
    const std::vector<TileProgram> programs = random_programs(random, seed);
    const CtaSchedule schedule = random_schedule(random, random_groups(random));
    for (const TileProgram& program : programs) {
      CAPTURE(to_string(program.name));
      const PassTraffic every = simulate_pass(program, schedule);
      const std::int64_t largest = every.histogram.empty() ? 1 : every.histogram.back().distance_bytes;
      for (const std::int64_t size :
           {std::int64_t{0}, std::int64_t{random.between(1, static_cast<int>(largest))}, largest - 1,
            largest}) {
        CAPTURE(size);
        const L2Traffic one = simulate_lru(program, schedule, size);
        CHECK(one.dram_read_bytes == every.dram_read_bytes(size));
        CHECK(one.dram_write_bytes == every.dram_write_bytes(size));
        CHECK(static_cast<const SmTraffic&>(one) == static_cast<const SmTraffic&>(every));
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
