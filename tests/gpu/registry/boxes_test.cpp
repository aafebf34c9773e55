// SPDX-License-Identifier: Apache-2.0
// What rows say of the copy engine's boxes, against what an H200 counted.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cpu_ref/schedule/cta_walk.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

/// What crosses for the tiles that a pass loads by boxes, over the bytes of these tiles.
double reads_over_tiles(const TileProgram& program) {
  double tiles = 0, filled = 0;
  for_each_access(program, [&](const TileAccess& access) {
    for (const Boxes& boxes : program.boxes) {
      if (access.tensor == boxes.tensor && access.kind == AccessKind::load &&
          boxes.asked_by == AskedBy::boxes) {
        tiles += static_cast<double>(access.bytes);
        filled += static_cast<double>(access.filled_bytes);
      }
    }
  });
  return (tiles + filled) / tiles;
}

void check(AttentionProblem problem, Direction direction, double counted) {
  CAPTURE(describe(problem));
  CAPTURE(to_string(direction));
  const Kernel& flash3 = find_gpu_kernel("gpu:flash3").row;
  int passes = 0;
  for (const TileProgram& program : flash3.programs(direction, problem, flash3.default_options(problem))) {
    const bool by_boxes = std::ranges::any_of(
        program.boxes, [](const Boxes& boxes) { return boxes.asked_by == AskedBy::boxes; });
    CHECK(by_boxes != (program.phases.empty() || program.name == PassName::combine));
    if (!by_boxes) continue;
    CHECK(std::abs(reads_over_tiles(program) - counted) < 0.0005);
    ++passes;
  }
  CHECK(passes == 1);
}

TEST_CASE(
    "gpu:flash3 reads whole boxes, as counted on an H200, and on an H100 where rows do not begin at "
    "sectors") {
  // By head_dim, over the bytes of the rows.
  const std::map<int, double> of_16_bits = {
      {24, 3.333},  {40, 2.000},  {56, 1.429},  {64, 1.000},  {72, 2.111},  {80, 1.600},
      {88, 1.727},  {96, 1.333},  {104, 1.462}, {112, 1.143}, {120, 1.267}, {128, 1.000},
      {136, 1.647}, {152, 1.474}, {160, 1.200}, {168, 1.333}, {184, 1.217}, {192, 1.000},
      {200, 1.480}, {216, 1.370}, {224, 1.143}, {232, 1.276}, {248, 1.194}, {256, 1.000}};
  const std::map<int, double> of_fp8 = {{48, 2.000},  {64, 1.000},  {96, 1.333},
                                        {128, 1.000}, {208, 1.462}, {240, 1.267}};
  AttentionProblem problem{.batch = 1, .heads = 2};
  problem.heads_kv = 2;
  problem.dtype = ElementType::fp16;
  for (const auto& [head_dim, counted] : of_16_bits) {
    problem.head_dim = head_dim;
    // A multiple of every tile's rows, so that none is ragged: of 64, 96, 112, 128 and 192.
    problem.seqlen_q = problem.seqlen_k = 2688;
    check(problem, Direction::backward, counted);
    check(problem, Direction::forward, counted);
  }
  problem.dtype = ElementType::fp8e4m3;
  for (const auto& [head_dim, counted] : of_fp8) {
    problem.head_dim = head_dim;
    problem.seqlen_q = problem.seqlen_k = 1536;
    check(problem, Direction::forward, counted);
  }
}

TEST_CASE("boxes of ragged tiles are read whole, too, but of Q only those that begin inside") {
  AttentionProblem problem{.batch = 1, .heads = 2, .seqlen_q = 1500, .seqlen_k = 1500, .head_dim = 128};
  problem.heads_kv = 2;
  problem.dtype = ElementType::fp16;
  check(problem, Direction::forward, 1.024);
}

TEST_CASE("the kernels of sm_90 alone have boxes of rows, numbers of heads come in sectors") {
  using enum TensorName;
  const AttentionProblem problem{.heads = 4, .seqlen_q = 300, .seqlen_k = 300, .dtype = ElementType::fp16};
  for (const Kernel* kernel : all_kernels()) {
    CAPTURE(kernel->name);
    bool of_rows = false;
    for (const TileProgram& program :
         kernel->programs(Direction::forward, problem, kernel->default_options(problem))) {
      for (const Boxes& boxes : program.boxes) of_rows = of_rows || boxes.asked_by == AskedBy::boxes;
    }
    CHECK(of_rows == (kernel->on_gpu() && kernel->chips.first == 90));
  }
  AttentionProblem modified = problem;
  modified.score_mods = {.alibi = true, .learned_sink = true};
  const Kernel& kernel = find_kernel("gpu:flash2-mma");
  const TileProgram forward =
      kernel.programs(Direction::forward, modified, kernel.default_options(modified)).front();
  for (const TensorName numbers : {alibi_slopes, sink}) {
    const TileAccess access = forward.access({numbers, AccessKind::load}, 0, 3, 0, -1);
    CHECK(access.bytes == 4);
    CHECK(access.filled_bytes == 28);
  }
}

}  // namespace
}  // namespace tilescope
