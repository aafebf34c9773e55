// SPDX-License-Identifier: Apache-2.0
// What a launch says rules programs out before any byte is compared.
#include "analysis/explain/launch_evidence.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace tilescope {
namespace {

constexpr std::int64_t kSms = 132;

AttentionProblem problem_of(std::int64_t head_dim) {
  AttentionProblem problem;
  problem.batch = 2;
  problem.heads = problem.heads_kv = 16;
  problem.seqlen_q = problem.seqlen_k = 4096;
  problem.head_dim = head_dim;
  problem.dtype = ElementType::fp16;
  return problem;
}

CandidateProgram forward_of(std::int64_t head_dim, TileShape tile) {
  constexpr Direction kForward[] = {Direction::forward};
  const auto all = candidate_programs(problem_of(head_dim), kForward);
  return *std::ranges::find_if(all, [tile](const CandidateProgram& candidate) {
    return candidate.name == "forward" && candidate.convention.empty() && candidate.tile == tile;
  });
}

KernelGroup launch(const std::string& name, std::array<std::int64_t, 3> grid, std::int64_t threads,
                   std::int64_t registers, std::int64_t shared_bytes) {
  KernelGroup kernel;
  kernel.name = name;
  kernel.launches = 1;
  kernel.launch.grid = grid;
  kernel.launch.block = {threads, 1, 1};
  kernel.launch.registers = registers;
  kernel.launch.shared_bytes = shared_bytes;
  kernel.launch.local_bytes = 0;
  return kernel;
}

std::string against(const KernelGroup& kernel, const CandidateProgram& candidate) {
  return LaunchEvidence(kernel, kSms).against(candidate).value_or("");
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("tiles are read from names that state them") {
  const auto tile = [](const char* name) { return tile_in_name(name); };
  const NamedTile flash2 =
      tile("void pytorch_flash::flash_bwd_kernel<Flash_bwd_kernel_traits<128, 64, 96, 8, 2>>");
  CHECK(flash2.head_dim == 128);
  CHECK(flash2.allows({64, 96}));
  CHECK_FALSE(flash2.allows({96, 64}));
  const NamedTile flash3 = tile(
      "cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, "
      "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1>>, cute::tuple<cute::C<128>, cute::C<176>, "
      "cute::C<128>>");
  CHECK(flash3.allows({128, 176}));
  CHECK_FALSE(flash3.allows({128, 128}));
  CHECK(tile("fmha_cutlassF_f16_aligned_64x128_rf_sm80").allows({64, 128}));
  const NamedTile cudnn =
      tile("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1");
  CHECK(cudnn.allows({192, 128}));  // as many warp groups of 64 rows as there are
  CHECK_FALSE(cudnn.allows({128, 64}));
  CHECK_FALSE(cudnn.allows({96, 128}));
  CHECK(tile("triton_attn_forward").allows({48, 16}));
  CHECK(tile("Flash_fwd_kernel_traits<99999999999, 128, 64,").allows({128, 64}));
}

TEST_CASE("a grid has a CTA a tile, or fills the device and loops") {
  const CandidateProgram candidate = forward_of(128, {128, 64});  // 32 tiles of 32 heads
  CHECK(against(launch("attn", {32, 32, 1}, 128, 255, 65536), candidate).empty());
  CHECK(contains(against(launch("attn", {64, 32, 1}, 128, 255, 65536), candidate), "its grid has 2048 CTAs"));
  CHECK(contains(against(launch("attn", {100, 1, 1}, 128, 255, 65536), candidate), "its grid has 100 CTAs"));
  const KernelGroup persistent = launch("attn", {kSms, 1, 1}, 128, 255, 65536);
  CHECK(against(persistent, candidate).empty());
  CHECK_FALSE(LaunchEvidence(persistent, kSms).grid_agrees(candidate));
  KernelGroup clusters = launch("attn", {36, 32, 1}, 128, 255, 65536);
  CHECK_FALSE(against(clusters, candidate).empty());
  clusters.launch.cluster = std::array<std::int64_t, 3>{12, 1, 1};  // 32 tiles in whole clusters of 12
  CHECK(against(clusters, candidate).empty());
}

TEST_CASE("tiles and sums must fit the CTA, and fill most of its shared memory") {
  const CandidateProgram large = forward_of(256, {192, 192});
  const KernelGroup kernel = launch("attn", {22 * 32, 1, 1}, 384, 168, 232448);
  CHECK(contains(against(kernel, large), "registers and shared memory of a CTA"));
  const CandidateProgram fits = forward_of(128, {128, 128});
  CHECK(against(launch("attn", {1024, 1, 1}, 384, 168, 232448), fits).empty());
  CHECK(contains(against(launch("attn", {1024, 1, 1}, 384, 168, 16384), fits), "do not hold a tile"));
  const CandidateProgram small = forward_of(128, {128, 16});
  CHECK(contains(against(launch("attn", {1024, 1, 1}, 384, 168, 232448), small), "of shared memory"));
}

TEST_CASE("names of other work, and of the other direction, are no attention of this one") {
  const CandidateProgram candidate = forward_of(128, {128, 64});
  const auto said = [&candidate](const char* name) {
    return against(launch(name, {32, 32, 1}, 128, 255, 65536), candidate);
  };
  CHECK(contains(said("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>"),
                 "other work"));
  CHECK(contains(said("my_attention_bwd"), "other direction"));
  CHECK(said("my_attention_fwd").empty());
  CHECK(said("my_kernel").empty());
}

}  // namespace tilescope
