// SPDX-License-Identifier: Apache-2.0
// In which order gpu:flash3 issues the tiles of masked problems, and which CTAs are persistent.
#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/kernels/flash3/choices.hpp"
#include "gpu/kernels/flash3/flash3.hpp"

using namespace tilescope;

namespace {

AttentionProblem causal(std::int64_t batch, std::int64_t heads, std::int64_t seqlen, std::int64_t head_dim) {
  AttentionProblem problem;
  problem.batch = batch;
  problem.heads = problem.heads_kv = heads;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.head_dim = head_dim;
  problem.dtype = ElementType::fp16;
  problem.causal = true;
  return problem;
}

/// Of the grid of the fused or the ordered backward pass.
Grid backward_grid(const AttentionProblem& problem, BackwardOrder order) {
  ProgramOptions options = Flash3::default_options(problem);
  options.backward = order;
  const auto programs = build_programs(Flash3::algorithm, Direction::backward, problem, options);
  const auto pass = std::find_if(programs.begin(), programs.end(),
                                 [](const TileProgram& program) { return program.name == PassName::dkdvdq; });
  REQUIRE(pass != programs.end());
  return pass->grid;
}

}  // namespace

TEST_CASE("flash3's fused backward pass has L2 swizzles that end together, of no more than L2 keeps") {
  const AttentionProblem brief = causal(32, 8, 512, 256), middle = causal(8, 8, 2048, 256);
  for (const AttentionProblem& problem : {brief, middle}) {
    const Grid grid = backward_grid(problem, BackwardOrder::fused);
    const std::int64_t head_bytes = (2 + 2 + 4) * problem.seqlen_q * problem.head_dim;  // Q, dO, dQ in fp32
    CHECK(grid.swizzled_heads / grid.num_splits * head_bytes <= 48 << 20);
  }
  // One head after the other, the longest kv tile of the last would begin when half of the work is done.
  AttentionProblem grouped = causal(2, 56, 1984, 96);
  grouped.heads_kv = 7;
  CHECK(!backward_grid(grouped, BackwardOrder::fused).heads_in_turn());
  // Kv tiles of one long group are shared, each CTA going through a part of its queries.
  AttentionProblem lone = causal(1, 8, 34331, 112);
  lone.heads_kv = 1;
  CHECK(Flash3::default_options(lone).query_splits > 1);
}

TEST_CASE("the first kv tile of a q tile stores its dQ where others do not wait for it head after head") {
  const auto start = [](AttentionProblem problem, std::int64_t heads_kv) {
    problem.heads_kv = heads_kv;
    return Flash3::default_options(problem).dq_start;
  };
  const AttentionProblem triangle = causal(4, 8, 4096, 128);
  AttentionProblem window = triangle;
  window.window_left = 1000;
  window.window_right = 0;
  CHECK(start(triangle, 8) == DqStart::in_order);
  CHECK(start(triangle, 2) == DqStart::cleared);
  CHECK(start(window, 2) == DqStart::in_order);
  CHECK(start(causal(4, 8, 4096, 192), 8) == DqStart::in_order);
  CHECK(start(causal(4, 8, 4096, 96), 8) == DqStart::cleared);
  CHECK(flash3_sees_evenly(window));
  CHECK(!flash3_sees_evenly(triangle));
}

TEST_CASE("an ordered backward pass and the forward pass keep the L2 swizzle that K and V allow") {
  const AttentionProblem problem = causal(32, 8, 512, 256);
  const ProgramOptions options = Flash3::default_options(problem);
  const auto forward = build_programs(Flash3::algorithm, Direction::forward, problem, options);
  CHECK(forward.at(0).grid.swizzled_heads == options.swizzled_heads);
  CHECK(options.swizzled_heads > 1);
  CHECK(backward_grid(problem, BackwardOrder::ordered).swizzled_heads == options.swizzled_heads);
}

TEST_CASE("L2 swizzles are alike, and none is smaller than asked for where there are heads enough") {
  CHECK(flash3_even_swizzles(6, 4, 32) == 6);    // 6 6 6 6 6 2
  CHECK(flash3_even_swizzles(12, 4, 32) == 11);  // 11 11 10, not 12 12 8
  CHECK(flash3_even_swizzles(0, 4, 32) == 4);
  CHECK(flash3_even_swizzles(100, 4, 32) == 32);
}

TEST_CASE("CTAs are persistent where rows are short, in the shapes that have room for it") {
  CHECK(flash3_backward_shape(64, false, true).persistent);
  CHECK(!flash3_backward_shape(64, false, false).persistent);
  CHECK(!flash3_backward_shape(64, true, true).persistent);
  CHECK(flash3_backward_shape(128, false, true).persistent);
  CHECK(flash3_backward_shape(80, false, true).persistent);
  CHECK(flash3_backward_shape(96, false, true).persistent);
  CHECK(!flash3_backward_shape(256, false, true).can_persist());
  CHECK(!flash3_backward_shape(128, false, true).dq_behind);  // one or the other
  CHECK(flash3_backward_shape(128, false, false).dq_behind);
  CHECK(flash3_backward_shape(64, true, true).dq_behind);
  CHECK(flash3_backward_persistent(768 * 100, 100));
  CHECK(!flash3_backward_persistent(768 * 100 + 1, 100));
  CHECK(Flash3::short_rows(causal(1, 1, 1024, 64)));
  CHECK(!Flash3::short_rows(causal(1, 1, 4096, 64)));
}

TEST_CASE("heads of a last L2 swizzle whose longest tile ends with the others") {
  CHECK(flash3_least_heads(10, 1320000, 64) == 1);
  CHECK(flash3_least_heads(500, 132000, 64) == 33);
  CHECK(flash3_least_heads(1000, 132000, 64) == 64);
}

TEST_CASE(
    "keys are split, or q tiles 64 rows high, where whole ones would leave multiprocessors without work") {
  const auto forward_tile = [](const AttentionProblem& problem) {
    return Flash3::default_options(problem)[PassName::forward].tile;
  };
  const auto splits = [](const AttentionProblem& problem) {
    return Flash3::default_options(problem).splits.value;
  };
  CHECK(forward_tile(causal(1, 1, 8192, 128)) == TileShape{64, 128});
  CHECK(splits(causal(1, 1, 8192, 64)) > 1);
  CHECK(splits(causal(1, 1, 2000, 256)) > 1);
  CHECK(splits(causal(4, 32, 4096, 64)) == 0);
  CHECK(splits(causal(4, 32, 4096, 256)) == 0);
  CHECK(splits(causal(1, 1, 300, 128)) == 0);      // few keys
  AttentionProblem few = causal(24, 6, 192, 160);  // a group's rows fill three tiles, its heads' apart four
  few.heads_kv = 3;
  few.causal = false;
  CHECK(Flash3::default_options(few).pack_gqa);
  few.heads = 9;  // groups of three are not interleaved
  few.causal = true;
  CHECK(!Flash3::default_options(few).pack_gqa);
  AttentionProblem decoded = causal(1024, 2, 40, 72);  // two heads' 80 rows fill one tile of 128
  decoded.heads_kv = 1;
  decoded.seqlen_k = 4806;
  CHECK(Flash3::default_options(decoded).pack_gqa);
  CHECK(forward_tile(decoded) == TileShape{128, 128});
  CHECK(forward_tile(causal(7, 1, 4490, 112)) == TileShape{128, 128});  // of 192 rows 168 tiles, of 128 252
  CHECK(forward_tile(causal(4, 32, 4096, 112)) == TileShape{192, 96});
  CHECK(forward_tile(causal(4, 32, 4096, 64)) == TileShape{256, 64});
  CHECK(forward_tile(causal(4, 32, 4096, 128)) == TileShape{128, 128});
  CHECK(forward_tile(causal(1, 1, 300, 128)) == TileShape{64, 128});
}

TEST_CASE(
    "kv tiles are shared where they would leave multiprocessors without work, by no more CTAs than pay") {
  const auto splits = [](const AttentionProblem& problem) {
    return Flash3::default_options(problem).query_splits;
  };
  CHECK(splits(causal(1, 1, 2048, 128)) > 1);
  CHECK(splits(causal(1, 1, 2048, 256)) > 1);
  CHECK(splits(causal(4, 32, 4096, 128)) == 1);
  CHECK(splits(causal(1, 25, 989, 72)) == 1);  // the sums would cost more than they gain
  AttentionProblem grouped = causal(1, 8, 179, 160);
  grouped.heads_kv = 1;
  CHECK(splits(grouped) >= 8);
}
