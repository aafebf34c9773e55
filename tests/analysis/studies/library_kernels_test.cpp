// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/library_kernels.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/model/counts/closed_form.hpp"

namespace tilescope {
namespace {

const LibraryKernel& library(std::string_view name) {
  const auto found = std::ranges::find(library_kernels(), name, &LibraryKernel::name);
  REQUIRE(found != library_kernels().end());
  return *found;
}

AttentionProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t heads_kv, std::int64_t rows,
                            std::int64_t head_dim, bool causal) {
  AttentionProblem problem;
  problem.batch = batch;
  problem.heads = heads;
  problem.heads_kv = heads_kv;
  problem.seqlen_q = problem.seqlen_k = rows;
  problem.head_dim = head_dim;
  problem.causal = causal;
  problem.dtype = ElementType::fp16;
  return problem;
}

ClosedFormBytes bytes_of(const LibraryPass& pass) { return closed_form_bytes(pass.program); }

// Counters of an H200: reports/foreign/drawn-h200-1795694888.json.gz, problems 1 and 9, and
// reports/data/explain-mha.json.gz.
TEST_CASE("the programs of other libraries move what was counted of them between SMs and L2") {
  const AttentionProblem causal64 = problem_of(2, 8, 8, 6784, 64, true);
  const AttentionProblem causal128 = problem_of(3, 23, 23, 6144, 128, true);
  const AttentionProblem full128 = problem_of(2, 16, 16, 4096, 128, false);
  constexpr auto kForward = Direction::forward, kBackward = Direction::backward;
  const auto forward = [](std::string_view name, const AttentionProblem& problem) {
    const std::vector<LibraryPass> passes = library_passes(library(name), problem, kForward);
    REQUIRE(passes.size() == 1);
    return bytes_of(passes.front()).sm_l2_read_bytes;
  };
  CHECK(forward("pytorch:flash2", causal64) == doctest::Approx(764186880).epsilon(2e-4));
  CHECK(forward("pytorch:cudnn", causal64) ==
        doctest::Approx(764181120).epsilon(1e-5));  // but for the first block that each CTA asks for
  CHECK(forward("triton:plain", causal64) == 764149760);
  CHECK(forward("pytorch:efficient", causal64) == doctest::Approx(2229927936).epsilon(0.02));
  CHECK(forward("pytorch:flash2", causal128) == doctest::Approx(5427205504).epsilon(2e-4));
  CHECK(forward("flash-attn:flash4", causal128) == 5426380800);
  CHECK(forward("triton:plain", full128) == 2181038080);

  const std::vector<LibraryPass> flash2 = library_passes(library("pytorch:flash2"), causal64, kBackward);
  REQUIRE(flash2.size() == 1);
  CHECK(bytes_of(flash2.front()).sm_l2_read_bytes == doctest::Approx(802894720).epsilon(3e-3));
  const std::vector<LibraryPass> triton = library_passes(library("triton:plain"), causal64, kBackward);
  REQUIRE(triton.size() == 2);
  CHECK(bytes_of(triton[0]).sm_l2_read_bytes == doctest::Approx(801488896).epsilon(2e-3));
  CHECK(bytes_of(triton[0]).sm_l2_write_bytes == 27787264);
  CHECK(bytes_of(triton[1]).sm_l2_write_bytes == 13893632);
  const std::vector<LibraryPass> flash4 = library_passes(library("flash-attn:flash4"), causal128, kBackward);
  CHECK(bytes_of(flash4.front()).sm_l2_read_bytes == doctest::Approx(5617999872).epsilon(1e-3));
}

TEST_CASE("FlashAttention-4 packs a group's heads forward, and adds to sums of dK and dV backward") {
  const AttentionProblem grouped = problem_of(1, 8, 2, 4096, 128, true);
  const LibraryKernel& flash4 = library("flash-attn:flash4");
  const TileProgram forward = library_passes(flash4, grouped, Direction::forward).front().program;
  CHECK(forward.pack_gqa);
  CHECK(forward.grid.order == TileOrder::head_swizzled);
  const TileProgram backward = library_passes(flash4, grouped, Direction::backward).front().program;
  CHECK(backward.num_ctas() == 8 * 4096 / 128);
  CHECK(std::ranges::count(backward.epilogue, Operand{TensorName::dk_accum, AccessKind::reduce}) == 1);
}

TEST_CASE("more of its CTAs that run at once take more of the L2") {
  const LibraryKernel& efficient = library("pytorch:efficient");
  const RunEntry run = simulate_library(efficient, problem_of(1, 2, 2, 2048, 64, false), Direction::forward,
                                        load_machine("h200"));
  CHECK(run.kernel == "pytorch:efficient");
  REQUIRE(run.passes.size() == 1);
  CHECK(run.passes.front().simulated->co_resident_ctas == 4 * 132);
  CHECK(run.passes.front().simulated->dram_read_bytes ==
        run.passes.front().closed_form->compulsory_read_bytes);
}

// reports/data/drawn-2026-11-28/measured-h200.json.gz: 9.1 MB where O and LSE are 7.3, in one wave of CTAs.
TEST_CASE("what FlashAttention-2 spills is written to DRAM") {
  AttentionProblem problem = problem_of(1, 20, 20, 1332, 128, false);
  problem.seqlen_k = 2048;
  const RunEntry run =
      simulate_library(library("pytorch:flash2"), problem, Direction::forward, load_machine("h200"));
  const PassRecord& pass = run.passes.front();
  const std::int64_t ctas = 20 * 11, threads = 128, of_thread = 64;
  CHECK(pass.simulated->dram_write_bytes ==
        pass.closed_form->compulsory_write_bytes + ctas * threads * of_thread);
  CHECK(pass.simulated->dram_write_range->front() == pass.simulated->dram_write_bytes);
}

}  // namespace
}  // namespace tilescope
