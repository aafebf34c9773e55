// SPDX-License-Identifier: Apache-2.0
// An L2 in two partitions: against the closed forms, and against what an H200 read.
#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "common/errors.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/analysis/model/replay/replayed_programs.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

TEST_CASE("a split L2 is asked for what the closed forms say, and moves between the least and that") {
  constexpr SplitL2Shape kShape{std::int64_t{16} << 20, 16, {}};
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(16);
    const AttentionProblem p = random.problem(tile);
    SplitL2Shape shape = kShape;
    shape.sm_groups = {{2, 0}, {3, 1}, {random.between(1, 4), 0}};
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program :
           testing::programs_of(choice, p, testing::random_options(random, tile))) {
        CAPTURE(to_string(program.name));
        for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
          int retired = 0;
          const SplitL2Traffic traffic =
              simulate_split_l2(program, {random.between(1, 9)}, shape, pages, [&] { ++retired; });
          CHECK(retired == program.num_ctas());
          const ClosedFormBytes closed = closed_form_bytes(program);
          CHECK(traffic.sm_l2_read_bytes() == closed.sm_l2_read_bytes);
          CHECK(traffic.sm_l2_write_bytes() == closed.sm_l2_write_bytes);
          // These problems take a fraction of the L2.
          CHECK(traffic.dram_read_bytes == closed.compulsory_read_bytes);
          CHECK(traffic.dram_write_bytes == closed.compulsory_write_bytes);
        }
      }
    }
  }
}

TEST_CASE("an L2 of fewer sets than are sampled is refused, and ends no thread") {
  const testing::OneHead head(22, 2048);
  const SplitL2Shape shape{1 << 16, 16, {{1, 0}}};  // 32 sets
  CHECK_THROWS_AS(simulate_split_l2(head.forward(Scan::ascending), {1}, shape), BadInput);
}

TEST_CASE("who is told of retired CTAs may end a replay, whatever thread it is on") {
  AttentionProblem p;
  p.heads = p.heads_kv = 8;
  p.seqlen_q = p.seqlen_k = 256;
  const SplitL2Shape shape{std::int64_t{16} << 20, 16, {{2, 0}, {3, 1}}};
  struct Enough {};
  const auto refuse = [] { throw Enough(); };
  for (const TileProgram& program :
       testing::programs_of(testing::kAlgorithmChoices[0], p, ProgramOptions::with_tile({16, 16}))) {
    CHECK_THROWS_AS(simulate_pass(program, {4}, refuse), Enough);
    CHECK_THROWS_AS(simulate_split_l2(program, {4}, shape, PagePlacement::random, refuse), Enough);
  }
}

TEST_CASE("a split L2 far too small keeps nothing from one sweep of K and V to the next") {
  const testing::OneHead head(22, 2048);
  constexpr SplitL2Shape kShape{kL2Partitions * 128 * std::int64_t{256}, 2, {}};
  for (const int ctas : {1, 2, 11}) {
    CAPTURE(ctas);
    SplitL2Shape shape = kShape;
    shape.sm_groups = {{ctas, 0}};
    const SplitL2Traffic traffic = simulate_split_l2(head.forward(Scan::ascending), {ctas}, shape);
    const int waves = ceil_div(head.q_tiles, ctas);
    CHECK(static_cast<double>(traffic.dram_read_bytes) ==
          doctest::Approx(static_cast<double>(head.q_bytes + waves * head.kv_bytes)).epsilon(0.01));
  }
}

/// Forward, fp16, block_m = 128; dram__bytes_read on an H200. By warps' instructions: gpu:flash2-mma, by
/// warpgroups': cuDNN 9.19.
struct MeasuredReads {
  MathUnit unit;
  std::int64_t heads, seqlen, head_dim, ctas_per_sm;
  double measured_bytes, tolerance;
};

TEST_CASE("the model of the H200 against DRAM reads measured on one") {
  using enum MathUnit;
  const Machine h200 = load_machine("h200");
  const MeasuredReads anchors[] = {
      {mma_sync, 32, 8192, 128, 2, 206.2e6, 0.05}, {mma_sync, 8, 32768, 128, 2, 296.4e6, 0.1},
      {mma_sync, 4, 65536, 128, 2, 573.3e6, 0.05}, {mma_sync, 2, 131072, 128, 2, 1102e6, 0.05},
      {mma_sync, 4, 65536, 64, 2, 118.5e6, 0.1},   {mma_sync, 2, 131072, 64, 2, 452.4e6, 0.1},
      {wgmma, 4, 65536, 128, 1, 678.9e6, 0.05},    {wgmma, 2, 131072, 128, 1, 1244.4e6, 0.05},
  };
  for (const MeasuredReads& anchor : anchors) {
    CAPTURE(anchor.seqlen);
    CAPTURE(anchor.head_dim);
    AttentionProblem p;
    p.heads = p.heads_kv = static_cast<int>(anchor.heads);
    p.seqlen_q = p.seqlen_k = anchor.seqlen;
    p.head_dim = anchor.head_dim;
    p.dtype = ElementType::fp16;
    const auto passes =
        build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({128, 64}));
    const CtaSchedule schedule{.co_resident_ctas = h200.sm_count.value * anchor.ctas_per_sm,
                               .ctas_per_sm = anchor.ctas_per_sm,
                               .progress = h200.progress_on(anchor.unit)};
    const SplitL2Traffic traffic = simulate_split_l2(passes[0], schedule, *h200.split_l2());
    CHECK(static_cast<double>(traffic.dram_read_bytes) ==
          doctest::Approx(anchor.measured_bytes).epsilon(anchor.tolerance));
  }
}

TEST_CASE("where hardly a byte is found again, DRAM moves no more than the SMs asked for") {
  const Machine h200 = load_machine("h200");
  AttentionProblem p;
  p.heads = p.heads_kv = 16;
  p.seqlen_q = p.seqlen_k = 8192;
  p.head_dim = 64;
  p.dtype = ElementType::fp16;
  const auto passes =
      build_programs(Algorithm::flash1, Direction::backward, p, ProgramOptions::with_tile({64, 128}));
  const CtaSchedule schedule{.co_resident_ctas = h200.sm_count.value};
  const SplitL2Traffic traffic = simulate_split_l2(passes.front(), schedule, *h200.split_l2());
  CHECK(traffic.hit_rate(traffic.dram_read_bytes) >= 0);
  CHECK(traffic.hit_rate(traffic.dram_read_bytes) < 0.01);
  CHECK(traffic.dram_write_bytes <= traffic.sm_l2_write_bytes());
}

/// gpu:flash1 forward, fp16, pages of its tensors at random places.
SplitL2Traffic flash1_random_pages(AttentionProblem p, TileShape tile) {
  const Machine h200 = load_machine("h200");
  p.dtype = ElementType::fp16;
  const auto passes =
      build_programs(Algorithm::flash1, Direction::forward, p, ProgramOptions::with_tile(tile));
  const CtaSchedule schedule{.co_resident_ctas = h200.sm_count.value, .sm_groups = h200.sm_groups->value};
  return simulate_split_l2(passes.front(), schedule, *h200.split_l2(), PagePlacement::random);
}

TEST_CASE("medians over layouts against those of DRAM reads measured with pages at random places") {
  AttentionProblem p;
  p.heads = 8;
  p.heads_kv = 1;
  p.seqlen_q = p.seqlen_k = 4096;
  p.head_dim = 128;
  const SplitL2Traffic few = flash1_random_pages(p, {128, 64});
  CHECK(static_cast<double>(few.dram_read_bytes) == doctest::Approx(184e6).epsilon(0.15));
  REQUIRE(few.dram_read_range);
  CHECK((*few.dram_read_range)[0] < few.dram_read_bytes);
  CHECK((*few.dram_read_range)[1] > few.dram_read_bytes);
  const SplitL2Traffic again = flash1_random_pages(p, {128, 64});
  CHECK(again.dram_read_bytes == few.dram_read_bytes);
  CHECK(again.dram_write_bytes == few.dram_write_bytes);
  CHECK(again.dram_read_range == few.dram_read_range);

  p.heads = 128;
  p.heads_kv = 16;
  p.seqlen_q = p.seqlen_k = 1024;
  p.head_dim = 64;
  CHECK(static_cast<double>(flash1_random_pages(p, {128, 128}).dram_read_bytes) ==
        doctest::Approx(319e6).epsilon(0.15));
}

}  // namespace
}  // namespace tilescope
