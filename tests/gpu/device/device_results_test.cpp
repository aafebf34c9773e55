// SPDX-License-Identifier: Apache-2.0
// Results of the kernels on a device against exact ones and their CPU mirrors', tile by tile.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "gpu/kernels/split_k/split_k.hpp"
#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

using namespace testing;

TEST_CASE("results are exact and the CPU mirror's, visited tiles and states what their program says") {
  std::int64_t ran = 0;
  for (const GpuKernel& rung : chosen_rungs()) {
    for (int i = 0; i < device_options.cases_per_kernel; ++i) {
      const unsigned seed = device_options.first_seed + static_cast<unsigned>(i);
      CAPTURE(seed);
      testing::ProblemGenerator random(seed);
      const AttentionProblem problem = draw_problem(random, rung.row);
      const ProgramOptions options = draw_options(random, rung.row, problem);
      // The fast build, and the observed one.
      judge_on_device(rung.row, problem, options, Direction::backward, i % 2 == 1);
      ++ran;
    }
  }
  require_cases(ran);
}

TEST_CASE("fp8 forward: results, visited tiles and states, round the tile's edges, at every head dimension") {
  std::int64_t ran = 0;
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    for (const ElementType dtype : {ElementType::fp8e4m3, ElementType::fp8e5m2}) {
      if (!kernel.can.forward.has(feature_of(dtype))) continue;
      for (int i = 0; i < device_options.cases_per_kernel; ++i) {
        const unsigned seed = device_options.first_seed + static_cast<unsigned>(i);
        CAPTURE(seed);
        testing::ProblemGenerator random(seed);
        const int multiple = kernel.can.head_dim_multiple(dtype), most = kernel.can.head_dims.back();
        const std::int64_t head_dim = multiple * random.between(1, most / multiple);
        AttentionProblem problem = random.problem(
            kernel.default_options({.head_dim = head_dim, .dtype = dtype})[PassName::forward].tile);
        problem.head_dim = head_dim;
        problem.dtype = dtype;
        if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
        ProgramOptions options = draw_options(random, kernel, problem);
        const bool observed = i % 2 == 1;  // of the kernel's own sums alone
        if (!observed) {
          options.fp8_sums = kernel.fp8_sums[static_cast<std::size_t>(i / 2) % kernel.fp8_sums.size()];
        }
        if (kernel.refusal(problem, Direction::forward, options)) continue;
        judge_on_device(kernel, problem, options, Direction::forward, observed);
        ++ran;
      }
    }
  }
  require_cases(ran);
}

TEST_CASE("dK, dV and dQ in one launch, and padding, are right at every compiled head dimension") {
  std::int64_t ran = 0;
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    if (!kernel.can.backward.has(Feature::key_padding)) continue;
    for (const std::int64_t head_dim : kernel.can.head_dims) {
      AttentionProblem problem{.batch = 3, .heads = 4, .heads_kv = 2, .head_dim = head_dim, .seed = 3};
      problem.dtype = kernel.can.forward.has(Feature::fp16) ? ElementType::fp16 : ElementType::fp32;
      ProgramOptions options = kernel.default_options(problem);
      const TileShape tile = options[PassName::forward].tile;
      problem.seqlen_q = 3 * tile.block_m + 5;
      problem.seqlen_k = 2 * tile.block_n + 7;
      problem.causal = true;
      const std::vector<std::int64_t> lengths = {problem.seqlen_k, tile.block_n + 1, 0};
      for (const bool padded : {false, true}) {
        problem.key_lengths = padded ? lengths : std::vector<std::int64_t>{};
        for (const BackwardOrder order : kernel.backward_orders) {
          if (device_options.only_backward && order != *device_options.only_backward) continue;
          if (!padded && order != BackwardOrder::single_launch) continue;  // other tests have these
          options = kernel.default_options(problem);
          options.backward = order;
          judge_on_device(kernel, problem, options, Direction::backward, false);
          judge_on_device(kernel, problem, options, Direction::backward, true);
          ++ran;
        }
        if (padded && kernel.backward_orders.empty()) {
          judge_on_device(kernel, problem, options, Direction::backward, false);
          ++ran;
        }
      }
    }
  }
  require_cases(ran);
}

TEST_CASE("the split over keys gives the CPU mirror's results and states") {
  if (!device_options.only_kernel.empty() && device_options.only_kernel != SplitK::name) return;
  const Kernel& kernel = find_gpu_kernel(SplitK::name).row;
  for (int i = 0; i < device_options.cases_per_kernel; ++i) {
    testing::ProblemGenerator random(device_options.first_seed + static_cast<unsigned>(i));
    AttentionProblem problem = random.problem(SplitK::kTile);
    problem.head_dim = random.between(1, SplitK::kHeadDim);
    problem.dtype = i % 3 == 0 ? ElementType::bf16 : ElementType::fp16;
    problem.dropout = 0;
    if (random.chance(0.3)) problem.softmax_scale = std::array{0.0, -0.2, 1.0}[random.between(0, 2)];
    judge_on_device(kernel, problem, kernel.default_options(problem), Direction::forward, i % 2 == 1);
  }
}

#ifdef TILESCOPE_HAS_TUNER  // without it there are no other tiles
/// A tile shape that a kernel can be tuned to, beside its own, which the other tests run.
struct TunedTile {
  Kernel kernel;
  std::int64_t head_dim;
  ElementType type;
  PassName pass;
  TileShape tile;
  PassLaunch launch;
};

std::vector<TunedTile> tuned_tiles() {
  std::vector<TunedTile> tiles;
  for (const GpuKernel& rung : chosen_rungs()) {
    for (const std::int64_t head_dim : {64, 128, 256}) {
      for (const ElementType type : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
        const AttentionProblem problem{.head_dim = head_dim, .dtype = type};
        if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) continue;
        for (int pass = 0; pass < kNumPasses; ++pass) {
          const auto choices = rung.row.pass_choices(problem, static_cast<PassName>(pass));
          for (std::size_t i = 1; i < choices.size(); ++i) {
            tiles.push_back(
                {rung.row, head_dim, type, static_cast<PassName>(pass), choices[i].tile, choices[i].launch});
          }
        }
      }
    }
  }
  return tiles;
}

/// One causal, with two ragged tiles a side, and one with a window and one tile of queries and a row.
std::vector<AttentionProblem> problems_round(const TunedTile& tuned) {
  AttentionProblem causal{.heads = 2, .heads_kv = 1, .head_dim = tuned.head_dim, .dtype = tuned.type};
  causal.causal = true;
  causal.seqlen_q = causal.seqlen_k = 2 * std::max(tuned.tile.block_m, tuned.tile.block_n) + 3;
  AttentionProblem windowed = causal;
  windowed.causal = false;
  windowed.window_left = tuned.tile.block_n + 1;
  windowed.seqlen_q = tuned.tile.block_m + 1;
  return {causal, windowed};
}

TEST_CASE("every tile shape that a kernel can be tuned to gives the CPU mirror's results") {
  const std::vector<TunedTile> tiles = tuned_tiles();
  for (const TunedTile& tuned : tiles) {
    CAPTURE(tuned.tile.block_m);
    CAPTURE(tuned.tile.block_n);
    CAPTURE(tuned.launch.warps);
    CAPTURE(tuned.launch.stages);
    for (const AttentionProblem& problem : problems_round(tuned)) {
      ProgramOptions options = tuned.kernel.default_options(problem);
      options[tuned.pass].tile = tuned.tile;
      options[tuned.pass].launch = tuned.launch;
      for (const BackwardOrder order : tuned.kernel.backward_orders) {
        if (device_options.only_backward && order != *device_options.only_backward) continue;
        if (order == BackwardOrder::single_launch && tuned.pass != PassName::forward)
          continue;  // own tiles alone
        options.backward = order;
        judge_on_device(tuned.kernel, problem, options, Direction::backward, false);
      }
    }
  }
  MESSAGE(tiles.size(), " tile shapes, warps and stages beside the kernels' own");
  require_cases(static_cast<std::int64_t>(tiles.size()));
}
#endif

}  // namespace
}  // namespace tilescope
