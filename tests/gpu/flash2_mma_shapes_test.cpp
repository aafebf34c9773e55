// SPDX-License-Identifier: Apache-2.0
// The tile shapes of gpu:flash2-mma without a device: they fit the chips they are meant for, and the registry
// row says what the kernels are built for.
#include "gpu/kernels/flash2_mma/shapes.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/kernels/flash2_mma/choices.hpp"
#include "gpu/kernels/flash2_mma/flash2_mma.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

constexpr int kRegistersPerSm = 65536;
constexpr int kSharedBytesPerSm = 228 * 1024;  // sm_90
constexpr int kReservedBytesPerCta = 1024;
constexpr int kMajors[] = {8, 9};

/// Registers that a thread may take when `ctas` of `threads` share an SM, in the hardware's units of 8.
int registers_per_thread(int threads, int ctas) {
  return std::min(255, kRegistersPerSm / (threads * ctas) / 8 * 8);
}

AttentionProblem fp16_problem(std::int64_t head_dim) {
  AttentionProblem problem{.batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 300, .seqlen_k = 500};
  problem.head_dim = head_dim;
  problem.dtype = ElementType::fp16;
  return problem;
}

TEST_CASE("forward shapes fit registers and shared memory") {
  for (int dim : kMmaHeadDims) {
    std::vector<MmaForwardShape> shapes = {mma_forward_shape(dim, true)};
    for (const MmaForwardShape& shape : mma_forward_choices(dim)) shapes.push_back(shape);
    for (const MmaForwardShape& shape : shapes) {
      CAPTURE(dim);
      CAPTURE(shape.tile.block_m);
      CAPTURE(shape.tile.block_n);
      CHECK(shape.warp_rows() % 16 == 0);
      CHECK(shape.tile.block_n % 16 == 0);
      const int accumulators = shape.warp_rows() * (dim + shape.tile.block_n) / 32;  // O and S
      CHECK(accumulators < registers_per_thread(shape.threads(), shape.ctas_per_sm));
      for (int major : kMajors) {
        CHECK(layout_on(shape, dim, major).end() <= max_shared_bytes(major));
      }
      const int stages = shape.stages > 0 ? shape.stages : 2;
      CHECK(stages_that_fit(shape, dim, 9) == stages);
      CHECK(shape.ctas_per_sm * (shape.layout(dim, stages).end() + kReservedBytesPerCta) <=
            kSharedBytesPerSm);
    }
  }
}

TEST_CASE("backward shapes fit registers and shared memory") {
  for (int dim : kMmaHeadDims) {
    CAPTURE(dim);
    for (const MmaDkdvShape& dkdv : mma_dkdv_choices(dim)) {
      CHECK(dkdv.warps_n() * dkdv.warps_m() == dkdv.warps);
      CHECK(dkdv.dq_warps_m() * dkdv.dq_warps_d() == dkdv.warps);
      CHECK(dkdv.warp_queries() % 16 == 0);
      CHECK(dim / dkdv.warps_m() % 16 == 0);
      CHECK(dim / dkdv.dq_warps_d() % 16 == 0);
      // dK and dV; S^T and dP^T of the tile.
      const int accumulators = 2 * (dkdv.tile.block_n * dim + dkdv.tile.block_m * dkdv.tile.block_n);
      CHECK(accumulators / dkdv.threads() < registers_per_thread(dkdv.threads(), 1));
      CHECK(dkdv.stages <= 2);
      CHECK(stages_that_fit(dkdv, dim, 9) == (dkdv.stages > 0 ? dkdv.stages : 2));
      for (int major : kMajors) {
        CHECK(layout_on(dkdv, dim, major).end() <= max_shared_bytes(major));
      }
    }
    for (const MmaDqShape& dq : mma_dq_choices(dim)) {
      CHECK(dq.warp_rows() % 16 == 0);
      CHECK(dq.warp_rows() * (dim + 2 * dq.tile.block_n) / 32 <
            registers_per_thread(dq.threads(), dq.ctas_per_sm));
      for (int major : kMajors) {
        CHECK(layout_on(dq, dim, major).end() <= max_shared_bytes(major));
      }
      const int stages = dq.stages > 0 ? dq.stages : 2;
      CHECK(stages_that_fit(dq, dim, 9) == stages);
      CHECK(dq.ctas_per_sm * (dq.layout(dim, stages).end() + kReservedBytesPerCta) <= kSharedBytesPerSm);
    }
  }
}

TEST_CASE("the choices of a pass are its own tile and others, all different, and the row takes each") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  for (std::int64_t dim : {64, 72, 128, 256}) {
    const AttentionProblem problem = fp16_problem(dim);
    for (const PassName pass : {PassName::forward, PassName::dkdv, PassName::dkdvdq, PassName::dq}) {
      ProgramOptions own = row.default_options(problem);
      own.backward = pass == PassName::dkdvdq ? BackwardOrder::fused : BackwardOrder::split;
      const std::vector<TileShape> choices = row.tile_choices(problem, pass);
      REQUIRE(!choices.empty());
      CHECK(choices.front() == own[pass].tile);
      for (std::size_t i = 0; i < choices.size(); ++i) {
        CHECK(std::count(choices.begin(), choices.end(), choices[i]) == 1);
        ProgramOptions options = own;
        options[pass].tile = choices[i];
        const Direction direction = pass == PassName::forward ? Direction::forward : Direction::backward;
        CHECK_FALSE(row.refusal(problem, direction, options));
      }
    }
  }
}

TEST_CASE("each tile runs with the warps and stages that the row names, and with no others") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  bool other_warps = false, other_stages = false;
  for (std::int64_t dim : {64, 128, 256}) {
    const AttentionProblem problem = fp16_problem(dim);
    for (const PassName pass : {PassName::forward, PassName::dkdv, PassName::dkdvdq, PassName::dq}) {
      CAPTURE(dim);
      CAPTURE(to_string(pass));
      ProgramOptions options = row.default_options(problem);
      options.backward = pass == PassName::dkdvdq ? BackwardOrder::fused : BackwardOrder::split;
      const Direction direction = pass == PassName::forward ? Direction::forward : Direction::backward;
      const std::vector<PassChoice> choices = row.pass_choices(problem, pass);
      for (const PassChoice& choice : choices) {
        CHECK(std::count(choices.begin(), choices.end(), choice) == 1);
        options[pass].tile = choice.tile;
        options[pass].launch = choice.launch;
        CHECK_FALSE(row.refusal(problem, direction, options));
        const auto programs = row.programs(direction, problem, options);
        const auto program = std::find_if(programs.begin(), programs.end(),
                                          [pass](const TileProgram& one) { return one.name == pass; });
        REQUIRE(program != programs.end());
        const LaunchShape shape = row.launch_shape(*program, kSm90);
        if (choice.launch.warps > 0) CHECK(shape.threads_per_cta == 32 * choice.launch.warps);
        other_warps = other_warps || choice.launch.stages == 0;
        other_stages = other_stages || choice.launch.stages > 2;
      }
      options[pass] = {.tile = choices.front().tile, .launch = {.warps = 5, .stages = 2}};
      CHECK(row.refusal(problem, direction, options)->find("5 warps 2 stages") != std::string::npos);
    }
  }
  CHECK(other_warps);
  CHECK(other_stages);
}

TEST_CASE("dropout and rows without whole chunks leave no choice") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  AttentionProblem problem = fp16_problem(64);
  CHECK(row.tile_choices(problem, PassName::forward).size() > 1);
  problem.dropout = 0.1;
  CHECK(row.tile_choices(problem, PassName::forward) ==
        std::vector{row.default_options(problem)[PassName::forward].tile});
  CHECK(row.tile_choices(fp16_problem(63), PassName::dkdvdq).size() == 1);
}

TEST_CASE("the row takes its own tiles at every head_dim, and no others") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  for (std::int64_t dim : {1, 16, 63, 64, 65, 96, 128, 129, 192, 256}) {
    CAPTURE(dim);
    AttentionProblem problem = fp16_problem(dim);
    for (double dropout : {0.0, 0.3}) {
      problem.dropout = dropout;
      ProgramOptions options = row.default_options(problem);
      CHECK_FALSE(row.refusal(problem, Direction::forward, options));
      options[PassName::forward].tile.block_n += 16;
      CHECK(row.refusal(problem, Direction::forward, options));
    }
    for (BackwardOrder order : row.backward_orders) {
      ProgramOptions options = row.default_options(problem);
      options.backward = order;
      CHECK_FALSE(row.refusal(problem, Direction::backward, options));
      for (const TileProgram& program : row.programs(Direction::backward, problem, options)) {
        CHECK(row.launch_shape(program, kSm90).threads_per_cta % 32 == 0);
        CHECK(row.launch_shape(program, kSm90).shared_bytes <= max_shared_bytes(9));
      }
      options[order == BackwardOrder::fused ? PassName::dkdvdq : PassName::dkdv].tile.block_m += 16;
      CHECK(row.refusal(problem, Direction::backward, options));
    }
  }
}

TEST_CASE("refusals say what the kernel has") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  AttentionProblem problem = fp16_problem(64);
  ProgramOptions options = row.default_options(problem);
  options.backward = BackwardOrder::q_outer;
  CHECK(row.refusal(problem, Direction::backward, options)->find("fused, split and single-launch") !=
        std::string::npos);
  problem.dtype = ElementType::fp32;
  const auto refusal = row.refusal(problem, Direction::forward, row.default_options(problem));
  REQUIRE(refusal);
  CHECK(*refusal == "computes fp16 and bf16, not fp32");
}

TEST_CASE("masked problems are issued longest first, short ones in L2 swizzles") {
  const Kernel& row = find_gpu_kernel("gpu:flash2-mma").row;
  AttentionProblem problem = fp16_problem(128);
  CHECK(row.default_options(problem).order == TileOrder::row_major);
  problem.causal = true;
  CHECK(row.default_options(problem).order == TileOrder::head_swizzled);
  CHECK(row.default_options(problem).swizzled_heads == problem.batch * problem.heads);
  problem.batch = 1000;
  CHECK(row.default_options(problem).swizzled_heads < problem.batch * problem.heads);
  problem.seqlen_k = 1 << 20;
  CHECK(row.default_options(problem).order == TileOrder::longest_first);
}

}  // namespace
}  // namespace tilescope
