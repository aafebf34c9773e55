// SPDX-License-Identifier: Apache-2.0
// What must not change a bit of the results: how tensors lie in memory, the run, finer tiles.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "gpu/launch/device_session.hpp"
#include "tests/gpu/device/device_cases.hpp"

namespace tilescope {
namespace {

using namespace testing;

/// What the forward pass leaves in `out`, with the kernel's own options.
Tensor forward_out(const GpuKernel& rung, const TensorSet& inputs, TensorLayout layout,
                   std::optional<std::uint64_t> placement = std::nullopt) {
  const AttentionProblem& problem = inputs.problem();
  DeviceSession session(rung.row, rung.launch, problem, Direction::forward, rung.row.default_options(problem),
                        layout, placement);
  for (TensorName name : {TensorName::q, TensorName::k, TensorName::v}) session.upload(name, inputs[name]);
  for (std::size_t pass = 0; pass < session.programs().size(); ++pass) session.launch(pass);
  session.synchronize();
  session.check_guards();
  TensorSet results(problem);
  session.download(TensorName::out, results.allocate(TensorName::out));
  session.synchronize();
  return std::move(results[TensorName::out]);
}

TEST_CASE("tensors with the rows outside the heads give the same bits") {
  for (const GpuKernel& rung : chosen_rungs()) {
    for (int i = 0; i < std::max(1, device_options.cases_per_kernel / 8); ++i) {
      testing::ProblemGenerator random(device_options.first_seed + 1000 + static_cast<unsigned>(i));
      const AttentionProblem problem = draw_problem(random, rung.row);
      CAPTURE(rung.row.name);
      CAPTURE(describe(problem));
      const TensorSet inputs = with_inputs(problem);
      CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd),
                      forward_out(rung, inputs, TensorLayout::bnhd)));
    }
  }
}

TEST_CASE("tensors in pages at random places give the same bits, and give their pages back") {
  for (const GpuKernel& rung : chosen_rungs()) {
    CAPTURE(rung.row.name);
    // Of several pages: Q takes three or more.
    AttentionProblem problem{
        .heads = 12, .heads_kv = 6, .seqlen_q = 3000, .seqlen_k = 3000, .dtype = ElementType::fp16};
    if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp32;
    }
    const TensorSet inputs = with_inputs(problem);
    const Tensor contiguous = forward_out(rung, inputs, TensorLayout::bhnd);
    CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 0), contiguous));
    // The driver and other processes take and give pages of their own meanwhile; a page that each run kept
    // would add up.
    constexpr std::int64_t kRuns = 8, kPage = 2 << 20;
    const std::int64_t before = free_device_bytes();
    for (std::int64_t run = 0; run < kRuns; ++run) {
      CHECK(same_bits(forward_out(rung, inputs, TensorLayout::bhnd, 1), contiguous));
    }
    CHECK(before - free_device_bytes() < kRuns * kPage);
  }
}

TEST_CASE("passes without reductions give the same bits every time") {
  constexpr int kRuns = 100;
  for (const GpuKernel& rung : chosen_rungs()) {
    AttentionProblem problem{
        .heads = 4, .heads_kv = 2, .seqlen_q = 500, .seqlen_k = 700, .head_dim = 64, .causal = true};
    if (rung.row.refusal(problem, Direction::forward, rung.row.default_options(problem))) {
      problem.dtype = ElementType::fp16;
    }
    ProgramOptions options = rung.row.default_options(problem);
    options.backward = BackwardOrder::split;
    CAPTURE(rung.row.name);
    const bool splits = !rung.row.refusal(problem, Direction::backward, options);
    const auto names =
        splits ? std::vector{TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}
               : std::vector{TensorName::out, TensorName::lse};
    TensorSet first = with_inputs(problem);
    rung.row.run(options, Direction::forward, first, nullptr);
    if (splits) rung.row.run(options, Direction::backward, first, nullptr);
    for (int run = 1; run < kRuns; ++run) {
      TensorSet again = with_inputs(problem);
      rung.row.run(options, Direction::forward, again, nullptr);
      if (splits) rung.row.run(options, Direction::backward, again, nullptr);
      for (const TensorName name : names) {
        CAPTURE(to_string(name));
        REQUIRE(std::memcmp(first[name].data(), again[name].data(),
                            static_cast<std::size_t>(first[name].bytes())) == 0);
      }
    }
  }
}

#ifdef TILESCOPE_HAS_TUNER  // without it tiles are whole
TEST_CASE("tiles that the mask cuts, cut finer, give the same bits and the mirror's states") {
  int cut = 0;
  for (const GpuKernel& rung : chosen_rungs()) {
    const Kernel& kernel = rung.row;
    if (kernel.smallest_part == 0) continue;
    CAPTURE(kernel.name);
    for (const std::int64_t head_dim : kernel.can.head_dims) {
      AttentionProblem problem{.heads = 4, .heads_kv = 2, .head_dim = head_dim, .dtype = ElementType::bf16};
      ProgramOptions options = kernel.default_options(problem);
      options.backward = BackwardOrder::split;
      const TileShape tile = options[PassName::forward].tile;
      problem.seqlen_q = 2 * tile.block_m + 3;
      problem.seqlen_k = 5 * tile.block_n + 37;
      for (const auto& [causal, left] : {std::pair{false, -1}, {true, tile.block_n + 21}, {true, -1}}) {
        problem.causal = causal;
        problem.window_left = left;
        CAPTURE(describe(problem));
        TensorSet whole = with_inputs(problem);
        for (const int slices : {1, 2, 4, 8}) {
          CAPTURE(slices);
          options.diagonal_slices = slices;
          if (kernel.refusal(problem, Direction::backward, options)) continue;
          TensorSet tensors = with_inputs(problem);
          kernel.run(options, Direction::forward, tensors, nullptr);
          kernel.run(options, Direction::backward, tensors, nullptr);
          if (slices == 1) {
            whole = std::move(tensors);
            continue;
          }
          ++cut;
          for (const TensorName name :
               {TensorName::out, TensorName::lse, TensorName::dq, TensorName::dk, TensorName::dv}) {
            CAPTURE(to_string(name));
            CHECK(same_bits(tensors[name], whole[name]));
          }
        }
      }
      options.backward = BackwardOrder::fused;
      options.diagonal_slices = 2;
      judge_on_device(kernel, problem, options, Direction::backward, true);
    }
  }
  require_cases(cut);
}
#endif

}  // namespace
}  // namespace tilescope
