// SPDX-License-Identifier: Apache-2.0
// How libraries make attention, each kernel with the launch and the counts that an H200 saw of it, on
// problems that a seed drew: what their sources say must account for the bytes.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string_view>

#include "analysis/explain/answer.hpp"

namespace tilescope {
namespace {

AttentionProblem drawn(std::int64_t batch, std::int64_t heads, std::int64_t heads_kv, std::int64_t seqlen,
                       std::int64_t head_dim, bool causal) {
  AttentionProblem problem;
  problem.batch = batch;
  problem.heads = heads;
  problem.heads_kv = heads_kv;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.head_dim = head_dim;
  problem.dtype = ElementType::bf16;
  problem.causal = causal;
  return problem;
}

AttentionProblem with_keys(AttentionProblem problem, std::int64_t keys) {
  problem.seqlen_k = keys;
  return problem;
}

/// A kernel, its bytes without the causes that have counters of their own, and what it does.
struct SeenKernel {
  AttentionProblem problem;
  const char* name;
  std::array<std::int64_t, 3> grid;
  std::int64_t threads, registers, shared_bytes, read, written, reduced, l1_hits;
  const char *program, *convention;
  TileShape tile;
};

ExplainRecord record_of(const SeenKernel& seen) {
  KernelGroup kernel;
  kernel.name = seen.name;
  kernel.launches = 1;
  kernel.launch.grid = seen.grid;
  kernel.launch.block = {seen.threads, 1, 1};
  kernel.launch.registers = seen.registers;
  kernel.launch.shared_bytes = seen.shared_bytes;
  kernel.measured = {{"sm_l2_read_bytes", static_cast<double>(seen.read)},
                     {"sm_l2_write_bytes", static_cast<double>(seen.written)},
                     {"reduction_bytes", static_cast<double>(seen.reduced)},
                     {"l1_load_hit_bytes", static_cast<double>(seen.l1_hits)}};
  ExplainRecord record;
  record.problem = seen.problem;
  record.directions = {Direction::forward, Direction::backward};
  record.kernels = {kernel};
  record.collections = {{"NVIDIA H200", "GH100", "", "", 1}};
  return record;
}

/// Of the kernel as it was seen, and of it with its written bytes multiplied by each factor.
std::vector<KernelFit> fits_of(const SeenKernel& seen, std::initializer_list<double> factors) {
  ExplainRecord record = record_of(seen);
  for (const double factor : factors) {
    SeenKernel falsified = seen;
    falsified.written = std::llround(factor * static_cast<double>(seen.written));
    record.kernels.push_back(record_of(falsified).kernels.front());
  }
  return explain(record);
}

const AttentionProblem kGroupOf8 = drawn(3, 8, 1, 7102, 64, false),
                       kCross = with_keys(drawn(1, 14, 14, 364, 128, false), 1280),
                       kWidth96 = drawn(1, 18, 18, 2048, 96, true),
                       kGroupOf7 = drawn(1, 21, 3, 2605, 256, true),
                       kWidth192 = drawn(2, 6, 3, 2211, 192, true),
                       kWidth80 = drawn(1, 12, 6, 2224, 80, true),
                       kManyHeads = drawn(3, 18, 18, 5823, 64, true), kWide = drawn(3, 9, 9, 1726, 192, true),
                       kCausal = drawn(2, 16, 16, 4096, 128, true),
                       kCrossGroup = with_keys(drawn(2, 7, 1, 5995, 256, false), 6483);

// clang-format off
const SeenKernel kSeenKernels[] = {
    {kCross, "pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4",
     {6, 3, 14}, 128, 246, 81920, 58963968, 7888608, 0, 0,
     "forward", "keys split among 3 CTAs, partial results stored", {64, 128}},
    {kWidth80, "flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<96, 64, 128, 8",
     {35, 1, 12}, 256, 45, 0, 8540160, 10429440, 0, 0,
     "delta", "dQ sums zeroed, sums in whole tiles of 64 rows of 96 columns", {0, 0}},
    {kWidth80, "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<96, 64, 128, 8",
     {18, 1, 12}, 256, 255, 94208, 89037440, 104091648, 95551488, 5930496,
     "backward, dQ reduced", "dK and dV by query head, dQ sums and delta in whole tiles", {64, 128}},
    {kGroupOf8, "flash_bwd_preprocessFlashAttentionBackwardPreprocess",
     {56, 8, 3}, 256, 46, 0, 45018752, 46092288, 0, 220480,
     "delta", "dQ sums zeroed, lse in base 2, lse by 256 rows, sums in whole tiles of 128 rows of 64 columns", {0, 0}},
    {kGroupOf8, "flash_bwd_sm90FlashAttentionBackwardSm90",
     {56, 8, 3}, 384, 168, 199680, 2587361280, 2554331136, 2554331136, 0,
     "backward, dQ reduced", "dK and dV added to sums, tiles and rows copied whole, as boxes, sums in whole tiles", {128, 128}},
    {kGroupOf8, "flash_bwd_postprocessFlashAttentionBackwardPostprocess",
     {56, 1, 3}, 256, 38, 32768, 5505024, 2727168, 0, 0,
     "convert", "dK or dV sums to dK or dV, sums in whole tiles of 128 rows of 64 columns", {0, 0}},
    {kManyHeads, "flash_bwd_sm90FlashAttentionBackwardSm90",
     {46, 18, 3}, 384, 168, 199680, 2053969920, 1993296384, 1912799232, 0,
     "backward, dQ reduced", "tiles and rows copied whole, as boxes, sums in whole tiles", {128, 128}},
    {kWidth96, "flash_fwd_sm90FlashAttentionForwardSm90",
     {198, 1, 1}, 512, 128, 185344, 96657408, 7225344, 0, 0,
     "forward", "tiles copied whole, as boxes, in panels that divide a row", {192, 128}},
    {kGroupOf7, "flash_fwd_sm90FlashAttentionForwardSm90",
     {429, 1, 1}, 384, 168, 230400, 623485440, 28227780, 0, 0,
     "forward", "query heads of a group packed into a tile, tiles of K and V copied whole, as boxes", {128, 80}},
    {kWidth192, "flash_fwd_sm90FlashAttentionForwardSm90",
     {210, 1, 1}, 384, 168, 222208, 203857920, 10294416, 0, 0,
     "forward", "query heads of a group packed into a tile, tiles copied whole, as boxes", {128, 112}},
    {kGroupOf7, "cudnn_generated_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x256_1x4x1",
     {132, 1, 1}, 384, 168, 232448, 1338872896, 654366720, 598348800, 1974496,
     "backward, dQ reduced", "dK and dV by query head, tiles copied whole, as boxes, twice: for dV, then for dK and dQ", {64, 128}},
    {kWidth80, "cudnn_generated_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x4x1",
     {132, 1, 1}, 384, 168, 216064, 143521664, 87060480, 78520320, 0,
     "backward, dQ reduced", "dK and dV by query head, tiles copied whole, as boxes, in panels of 128 bytes", {64, 128}},
    {kWidth192, "cudnn::fusion::convert_dq_to_16bits<true>",
     {222, 2, 6}, 128, 30, 0, 21738112, 10867200, 0, 21736000,
     "convert", "dQ sums to dQ, 10 rows a CTA, and some of the next one's", {0, 0}},
    {kWidth192, "cudnn::fusion::fmha_reduce_head<true>",
     {443, 2, 3}, 128, 32, 0, 10866560, 5433600, 0, 256,
     "sum", "dK or dV over the query heads of a group, 5 rows a CTA, and some of the next one's", {0, 0}},
    {kCrossGroup, "void at::native::reduce_kernel<128, 4>",
     {6483, 1, 1}, 128, 48, 16, 46470144, 6638592, 0, 0,
     "sum", "dK or dV over the query heads of a group", {0, 0}},
    {kWidth96, "fmha_cutlassF_bf16_aligned_64x128_rf_sm80",
     {32, 18, 1}, 256, 128, 52224, 293732352, 7225344, 0, 0,
     "forward", "Q loaded at every step", {64, 128}},
    {kWide, "fmha_cutlassF_bf16_aligned_32x128_gmem_sm80",
     {54, 9, 3}, 128, 122, 51200, 1331364864, 241823232, 0, 7092608,
     "forward", "Q loaded at every step, sums of O in memory, lse padded to 32 rows", {32, 128}},
    {kCross, "fmha_cutlassB_bf16_aligned_128x128_k128_sm80",
     {10, 14, 1}, 512, 128, 133632, 147463552, 35457576, 0, 1567936,
     "backward, dQ read and written in turn", "operands loaded for each product", {128, 128}},
    {kWide, "fmha_cutlassB_bf16_aligned_128x64_k65536_sm80",
     {7, 9, 3}, 256, 151, 60928, 2906682656, 1216711908, 0, 19779936,
     "backward, dQ read and written in turn", "operands loaded for each product, sums of dK and dV in memory", {128, 64}},
    {kCausal, "triton_tem_fused_flex_attention_0",
     {32, 2, 16}, 256, 195, 131072, 1141047104, 34078720, 0, 16359936,
     "forward", "blocks looked up in tables", {128, 64}},
    {kCausal, "triton_per_fused_flex_attention_backward_0",
     {16384, 1, 1}, 64, 30, 32, 67108864, 524288, 0, 0,
     "delta", "", {0, 0}},
    {kCausal, "triton_tem_fused_flex_attention_backward_1",
     {64, 2, 16}, 256, 255, 164864, 2367665024, 100663296, 0, 32679712,
     "backward, dK and dV or dQ by CTA", "dQ by tiles with their sides exchanged, blocks looked up in tables", {64, 128}},
    {kCausal, "parallel_attn_bwd_kernel_dq",
     {32, 32, 1}, 256, 247, 163840, 1182793728, 33554432, 0, 0,
     "backward, dQ", "lse and delta with the heads beside each other", {128, 64}},
    {kCausal, "parallel_attn_bwd_kernel_dkv",
     {32, 32, 1}, 256, 255, 164864, 1312936704, 67108864, 0, 384,
     "backward, dK and dV", "lse and delta with the heads beside each other", {64, 128}},
};
// clang-format on

}  // namespace

TEST_CASE("kernels of libraries are explained as their sources say, and falsified counts of theirs are not") {
  for (const SeenKernel& seen : kSeenKernels) {
    CAPTURE(seen.name);
    CAPTURE(seen.convention);
    const std::vector<KernelFit> fits = fits_of(seen, {0.9, 0.999, 1.001, 1.1});
    const KernelFit& fit = fits.front();
    CHECK(fit.agreement == Agreement::explained);
    CHECK(fit.chance.value_or(1) <= kMostChance);
    REQUIRE_FALSE(fit.programs.empty());
    CHECK(fit.programs.front().name == seen.program);
    CHECK(fit.programs.front().convention == seen.convention);
    const auto& tiles = fit.programs.front().tiles;
    CHECK((seen.tile.block_m == 0 || std::find(tiles.begin(), tiles.end(), seen.tile) != tiles.end()));
    CHECK(std::all_of(fits.begin() + 1, fits.end(),
                      [](const KernelFit& other) { return other.agreement != Agreement::explained; }));
  }
}

TEST_CASE("a kernel that loads by boxes is told tiles with the bytes of their boxes") {
  std::size_t told = 0, beyond = 0;
  for (const SeenKernel& seen : kSeenKernels) {
    if (std::string_view(seen.convention).find("as boxes") == std::string_view::npos) continue;
    CAPTURE(seen.name);
    const ExplainRecord record = record_of(seen);
    const LaunchAnswer answer = answers(record, explain(record)).front();
    const auto candidates = candidate_programs(seen.problem, record.directions);
    for (const NextStep& step : answer.next_steps) {
      TileShape tile;
      if (std::sscanf(step.action.c_str(), "tiles of %d x %d", &tile.block_m, &tile.block_n) != 2) continue;
      // Where whole tiles fill the tensors, boxes are no candidate of their own.
      const CandidateProgram* other = nullptr;
      for (const std::string_view convention : {std::string_view(), std::string_view(seen.convention)}) {
        for (const CandidateProgram& one : candidates) {
          if (one.name == seen.program && one.convention == convention && one.tile == tile) other = &one;
        }
      }
      REQUIRE(other != nullptr);
      CHECK(step.bytes_then == other->bytes.total() + answer.left_over.total());
      beyond += other->filled_bytes > 0 ? 1 : 0;
      ++told;
    }
  }
  CHECK(told == 2);
  CHECK(beyond == 1);
}

TEST_CASE("a pass that combines partial results is explained beside the kernel that left them") {
  const auto measured = [](const SeenKernel& seen) {
    KernelGroup kernel;
    kernel.name = seen.name;
    kernel.launch.grid = seen.grid;
    kernel.launch.block = {seen.threads, 1, 1};
    kernel.measured = {{"sm_l2_read_bytes", static_cast<double>(seen.read)},
                       {"sm_l2_write_bytes", static_cast<double>(seen.written)}};
    return kernel;
  };
  SeenKernel combine{
      kCross,    "flash_fwd_splitkv_combine_kernel", {1274, 1, 1}, 128, 54, 80, 7949760, 1324960, 0, 0,
      "combine", "3 partial results, 4 rows a CTA",  {0, 0}};
  ExplainRecord record;
  record.problem = kCross;
  record.directions = {Direction::forward};
  record.kernels = {measured(kSeenKernels[0]), measured(combine)};
  const std::vector<KernelFit> fits = explain(record);
  CHECK(fits[1].agreement == Agreement::explained);
  CHECK(fits[1].programs.front().convention == combine.convention);
  record.kernels[1].launch.grid = {1275, 1, 1};
  CHECK(explain(record)[1].agreement != Agreement::explained);
}

TEST_CASE("what L1 serves, or loses, explains no more than its counter allows") {
  const auto agreement = [](const char* name, std::int64_t read, std::int64_t hits) {
    for (SeenKernel seen : kSeenKernels) {
      if (std::string_view(seen.name) != name) continue;
      seen.read += read;
      seen.l1_hits = hits;
      return fits_of(seen, {}).front().agreement;
    }
    return Agreement::unexplained;
  };
  // Each sector is asked for twice.
  const char* twice = "cudnn::fusion::convert_dq_to_16bits<true>";
  CHECK(agreement(twice, 0, 21736000) == Agreement::explained);
  CHECK(agreement(twice, 100000, 21736000) != Agreement::explained);
  CHECK(agreement(twice, 100000, 21636000) == Agreement::explained);
  // Operands of products go around L1; what every CTA computes delta from does not.
  const char* serial = "fmha_cutlassB_bf16_aligned_128x128_k128_sm80";
  CHECK(agreement(serial, 0, 0) != Agreement::explained);
  CHECK(agreement(serial, -1000000, 1567936) == Agreement::explained);
  CHECK(agreement(serial, -2000000, 1567936) != Agreement::explained);
}

}  // namespace tilescope
