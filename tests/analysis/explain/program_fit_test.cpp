// SPDX-License-Identifier: Apache-2.0
// Unknown kernels are recognised by their bytes: those of the candidates themselves, and those of published
// kernels in the committed records, whose tiles are known.
#include "analysis/explain/program_fit.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/explain/explain_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "profiler/records/json_fields.hpp"
#include "profiler/records/kernel_record.hpp"
#include "tests/paths.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr Direction kBothWays[] = {Direction::forward, Direction::backward};

KernelGroup kernel_with(std::int64_t read_bytes, std::int64_t write_bytes) {
  KernelGroup kernel;
  kernel.name = "unknown";
  kernel.launches = 1;
  kernel.measured = {{"sm_l2_read_bytes", static_cast<double>(read_bytes)},
                     {"sm_l2_write_bytes", static_cast<double>(write_bytes)}};
  return kernel;
}

bool names(const ProgramFit& fit, const CandidateProgram& candidate) {
  const bool tile_named = candidate.tile.block_m == 0 ||
                          std::find(fit.tiles.begin(), fit.tiles.end(), candidate.tile) != fit.tiles.end();
  return fit.name == candidate.name && fit.convention == candidate.convention && tile_named;
}

/// The fits of a committed record's kernels whose name contains `part`.
std::vector<KernelFit> fits_in(const std::string& file, const std::string& part, std::size_t launches,
                               const AttentionProblem& problem) {
  const std::string path = TILESCOPE_SOURCE_DIR "/reports/" + file;
  std::vector<KernelMeasurement> kernels = parse_kernel_record(path, read_text_file(path)).kernels;
  kernels.resize(std::min(launches, kernels.size()));
  std::erase_if(kernels, [&part](const auto& kernel) { return kernel.name.find(part) == std::string::npos; });
  ExplainRecord record;
  record.problem = problem;
  record.directions = {kBothWays[0], kBothWays[1]};
  record.kernels = group_launches(kernels);
  return explain(record);
}

AttentionProblem fp16_problem(std::int64_t batch, std::int64_t heads, std::int64_t seqlen,
                              std::int64_t head_dim, bool causal) {
  AttentionProblem problem;
  problem.batch = batch;
  problem.heads = problem.heads_kv = heads;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.head_dim = head_dim;
  problem.dtype = ElementType::fp16;
  problem.causal = causal;
  return problem;
}

}  // namespace

TEST_CASE("a candidate's own bytes lead back to it") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const AttentionProblem problem = random.problem({64, 64});
    const std::vector<CandidateProgram> candidates = candidate_programs(problem, kBothWays);
    const CandidateProgram& hidden =
        candidates[static_cast<std::size_t>(random.between(0, static_cast<int>(candidates.size()) - 1))];
    KernelGroup kernel = kernel_with(hidden.bytes.read_bytes, hidden.bytes.write_bytes);
    if (!hidden.tiled()) kernel.name = hidden.name == "fill" ? "zero the sums" : hidden.name;
    if (!hidden.library.empty()) kernel.name = hidden.library;
    kernel.measured["reduction_bytes"] = static_cast<double>(hidden.reduce_bytes);
    kernel.launch.grid = {std::max<std::int64_t>(1, hidden.num_ctas), 1, 1};
    const KernelFit fit = fit_kernel(kernel, candidates);
    CAPTURE(hidden.name);
    CAPTURE(hidden.convention);
    REQUIRE(fit.chance);
    CHECK(fit.agreement == (*fit.chance > kMostChance ? Agreement::not_certain : Agreement::explained));
    CHECK(fit.read_residual_bytes == 0);
    CHECK(fit.write_residual_bytes == 0);
    CHECK(std::any_of(fit.programs.begin(), fit.programs.end(),
                      [&hidden](const ProgramFit& program) { return names(program, hidden); }));
  }
}

TEST_CASE("a program that reduces another number of bytes than were counted is left out") {
  const std::vector<CandidateProgram> candidates =
      candidate_programs(fp16_problem(1, 4, 512, 64, false), std::span(kBothWays).last(1));
  const auto reducing = std::ranges::find_if(
      candidates, [](const CandidateProgram& candidate) { return candidate.reduce_bytes > 0; });
  REQUIRE(reducing != candidates.end());
  KernelGroup kernel = kernel_with(reducing->bytes.read_bytes, reducing->bytes.write_bytes);
  const auto named = [&](double counted_of_reduced) {
    kernel.measured["reduction_bytes"] = counted_of_reduced * static_cast<double>(reducing->reduce_bytes);
    const std::vector<ProgramFit> programs = fit_kernel(kernel, candidates).programs;
    return std::ranges::any_of(programs, [&](const ProgramFit& fit) { return names(fit, *reducing); });
  };
  CHECK(named(1.0));
  CHECK(named(0.995));  // counters repeat to within 1 %
  CHECK_FALSE(named(0.98));
  CHECK_FALSE(named(1.1));
}

TEST_CASE("so many falsified counts are explained as the candidates leave room for") {
  const auto all = candidate_programs(fp16_problem(1, 4, 1024, 64, true), std::span(kBothWays).first(1));
  const auto chance_among = [&all](std::size_t count) {
    KernelGroup kernel = kernel_with(all[0].bytes.read_bytes, all[0].bytes.write_bytes);
    return *fit_kernel(kernel, std::span(all).first(count)).chance;
  };
  // One candidate explains counts within the tolerance of it, on either side: ln(4) is the range of the draw.
  const double alone = 2 * kExplained / std::log(4.0);
  CHECK(chance_among(1) > 0);
  CHECK(chance_among(1) < 6 * alone);
  CHECK(chance_among(all.size()) > kMostChance);
  KernelGroup kernel = kernel_with(all[0].bytes.read_bytes, all[0].bytes.write_bytes);
  CHECK(fit_kernel(kernel, all).agreement == Agreement::not_certain);
}

TEST_CASE("counts of published kernels times random factors are not explained") {
  AttentionProblem problem = fp16_problem(2, 16, 4096, 128, false);
  const std::string path = TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json.gz";
  ExplainRecord record;
  record.problem = problem;
  record.directions = {kBothWays[0]};
  record.collections = {{"NVIDIA H200", "GH100", "13.0", "none", 1, "cold"}};
  testing::ProblemGenerator random(7);
  int falsified = 0, explained = 0;
  for (const KernelGroup& kernel : group_launches(parse_kernel_record(path, read_text_file(path)).kernels)) {
    if (kernel.name.find("fwd") == std::string::npos && kernel.name.find("fprop") == std::string::npos &&
        kernel.name.find("cutlassF") == std::string::npos) {
      continue;
    }
    for (int draw = 0; draw < 40; ++draw) {
      record.kernels.push_back(kernel);
      record.kernels.back().measured["sm_l2_read_bytes"] *= std::exp2(random.between(-1000, 1000) / 1000.0);
    }
  }
  for (const KernelFit& fit : explain(record)) {
    ++falsified;
    explained += fit.agreement == Agreement::explained;
  }
  CHECK(falsified == 120);
  CHECK(explained <= 2);
}

TEST_CASE("counted causes are taken off, uncounted ones are suspected") {
  const AttentionProblem problem = fp16_problem(1, 4, 1024, 64, false);
  const std::vector<CandidateProgram> candidates = candidate_programs(problem, kBothWays);
  const auto found = std::find_if(candidates.begin(), candidates.end(), [](const CandidateProgram& c) {
    return c.name == "forward" && c.convention.empty() && c.tile == TileShape{128, 64};
  });
  REQUIRE(found != candidates.end());
  constexpr std::int64_t kSpilled = 7'000'000, kReloaded = 30'000, kPartial = 9'000, kAtomic = 1'000;
  KernelGroup kernel = kernel_with(found->bytes.read_bytes + kReloaded + kAtomic,
                                   found->bytes.write_bytes + kSpilled + kPartial + kAtomic);
  kernel.launch.local_bytes = 144;
  kernel.launch.grid = {found->num_ctas, 1, 1};

  const KernelFit suspected = fit_kernel(kernel, candidates);
  CHECK(suspected.programs.front().name == "forward");
  CHECK(suspected.agreement == Agreement::unexplained);  // the reloads are 0.3 % of what this kernel reads
  REQUIRE(!suspected.hints.empty());
  CHECK(suspected.hints.front().find("144 B of local memory") != std::string::npos);

  kernel.measured["local_store_bytes"] = kSpilled;
  kernel.measured["local_reload_bytes"] = kReloaded;
  kernel.measured["store_bytes"] = static_cast<double>(found->bytes.write_bytes + kSpilled + kPartial);
  kernel.measured["stored_data_bytes"] = static_cast<double>(found->bytes.write_bytes);
  kernel.measured["atomic_read_bytes"] = kernel.measured["atomic_write_bytes"] = kAtomic;
  const KernelFit fit = fit_kernel(kernel, candidates);
  CHECK(fit.agreement == Agreement::explained);
  CHECK(fit.read_residual_bytes == 0);
  CHECK(fit.write_residual_bytes == 0);
  CHECK(fit.causes.size() == 5);
  CHECK(names(fit.programs.front(), *found));
  CHECK(fit.programs.front().tile_text() == "(128, 144) x any");  // as many CTAs, as many bytes
  CHECK(fit.hints.empty());

  kernel.measured["multicast_read_bytes"] = 5e6;
  const KernelFit multicast = fit_kernel(kernel, candidates);
  REQUIRE(multicast.hints.size() == 1);
  CHECK(multicast.hints.front().starts_with("5 MB arrived by multicast"));
}

TEST_CASE("a wrong number of heads is not explained with confidence, and the right one is named") {
  struct Asserted {
    const char *file, *kernel;
    std::int64_t batch, heads, seqlen, head_dim, truth;  // heads over the batch
  };
  // Each came within 0.1 % on both sides, by a program that is not the kernel's.
  for (const Asserted& wrong :
       {Asserted{"foreign/mha.json.gz", "triton_attn_dq", 2, 8, 4096, 128, 32},
        Asserted{"foreign/mha.json.gz", "dq_dk_dv_loop", 2, 12, 4096, 128, 32},
        Asserted{"foreign/mha-causal.json.gz", "dq_dk_dv_loop", 4, 15, 2048, 64, 64},
        Asserted{"foreign/mha-causal.json.gz", "triton_attn_dkdv", 4, 32, 2048, 64, 64}}) {
    CAPTURE(wrong.kernel);
    const bool causal = wrong.head_dim == 64;
    const auto problem = fp16_problem(wrong.batch, wrong.heads, wrong.seqlen, wrong.head_dim, causal);
    const auto fits = fits_in(wrong.file, wrong.kernel, std::size_t(-1), problem);
    REQUIRE(fits.size() == 1);
    CHECK(fits[0].agreement != Agreement::explained);
    REQUIRE(fits[0].other_heads);
    CHECK(fits[0].other_heads->heads == wrong.truth);
    CHECK_FALSE(fits[0].other_heads->program.tiles.empty());
  }
  // Far off, the right number is named as well.
  const auto fits = fits_in("foreign/mha.json.gz", "flash_fwd_kernel", std::size_t(-1),
                            fp16_problem(2, 15, 4096, 128, false));
  REQUIRE(fits.size() == 1);
  CHECK(fits[0].agreement == Agreement::unexplained);
  REQUIRE(fits[0].other_heads);
  CHECK(fits[0].other_heads->heads == 32);
  CHECK(fits[0].other_heads->program.name == "forward");
}

TEST_CASE("what no program does is said to be unexplained") {
  const std::vector<CandidateProgram> candidates =
      candidate_programs(fp16_problem(1, 4, 1024, 64, false), kBothWays);
  const KernelFit fit = fit_kernel(kernel_with(12'345'678, 87'654), candidates);
  CHECK(fit.agreement != Agreement::explained);
  KernelGroup without;
  without.name = "timed only";
  CHECK_THROWS_WITH_AS(fit_kernel(without, candidates), doctest::Contains("sm_l2_read_bytes"), BadInput);
}

TEST_CASE("one side that agrees explains nothing where the other is far off, unless the kernel spills") {
  const std::vector<CandidateProgram> candidates =
      candidate_programs(fp16_problem(1, 4, 1024, 64, false), kBothWays);
  const CandidateProgram& forward = candidates.front();
  const auto agreement = [&](std::int64_t written, std::int64_t local_bytes) {
    KernelGroup kernel = kernel_with(forward.bytes.read_bytes, written);
    kernel.launch.local_bytes = local_bytes;
    return fit_kernel(kernel, candidates).agreement;
  };
  const std::int64_t much = 100 * (forward.bytes.read_bytes + forward.bytes.write_bytes);
  CHECK(agreement(forward.bytes.write_bytes * 11 / 10, 0) == Agreement::reads_only);
  CHECK(agreement(much, 0) == Agreement::unexplained);
  CHECK(agreement(much, 144) == Agreement::reads_only);
}

TEST_CASE("tiles of published kernels are found in a record that knows no causes") {
  const AttentionProblem problem = fp16_problem(2, 16, 4096, 128, false);
  constexpr std::size_t kOfThisShape = 32;  // launches; the record goes on with other shapes
  struct Truth {
    const char *kernel, *program, *tile;
  };
  for (const Truth& truth :
       {Truth{"flash_fwd_kernel", "forward", "128 x 64"},
        Truth{"sdpa_sm90_flash_fprop", "forward", "128 x 128"}, Truth{"fmha_cutlassF", "forward", "64 x 128"},
        Truth{"dq_dk_dv_loop", "backward, dQ reduced", "64 x 128"},
        Truth{"sdpa_sm90_flash_bprop", "backward, dQ reduced", "(64, 128, 192, 256) x 128"}}) {
    CAPTURE(truth.kernel);
    const auto fits = fits_in("profiler/h200-traffic.json.gz", truth.kernel, kOfThisShape, problem);
    REQUIRE(fits.size() == 1);
    CHECK(fits[0].programs.front().name == truth.program);
    CHECK(fits[0].programs.front().tile_text() == truth.tile);
    CHECK((fits[0].agreement == Agreement::explained || fits[0].agreement == Agreement::reads_only));
  }
}

TEST_CASE("with causes counted, nothing of published kernels is left over") {
  const auto all = [](const char* file, const char* part, const AttentionProblem& problem) {
    return fits_in(file, part, std::size_t(-1), problem);
  };
  int kernels = 0;
  std::set<std::string> unexplained;
  AttentionProblem grouped = fp16_problem(1, 32, 4096, 128, true);
  grouped.heads_kv = 4;
  for (const char* part : {"triton_attn", "flash", "cudnn", "fmha"}) {
    CAPTURE(part);
    for (const auto& fits : {all("foreign/mha.json.gz", part, fp16_problem(2, 16, 4096, 128, false)),
                             all("foreign/mha-causal.json.gz", part, fp16_problem(4, 16, 2048, 64, true)),
                             all("foreign/gqa-causal.json.gz", part, grouped)}) {
      for (const KernelFit& fit : fits) {
        CHECK_FALSE(fit.other_heads);
        if (fit.agreement != Agreement::explained) unexplained.insert(fit.programs.front().name);
        ++kernels;
      }
    }
  }
  CHECK(kernels > 35);
  CHECK(unexplained == std::set<std::string>{"backward, dQ"});  // loads that L1 served leave too much open
  // It reads 0.7 % less than it loads: L1 served the rest.
  const auto causal_dq =
      all("foreign/mha-causal.json.gz", "triton_attn_dq", fp16_problem(4, 16, 2048, 64, true));
  REQUIRE(causal_dq.size() == 1);
  CHECK(causal_dq[0].programs.front().name == "backward, dQ");
  CHECK(causal_dq[0].programs.front().tile_text() == "128 x (16, 32, 64, 128)");
  const auto grouped_backward = all("foreign/gqa-causal.json.gz", "dq_dk_dv_loop", grouped);
  REQUIRE(grouped_backward.size() == 1);
  CHECK(grouped_backward[0].programs.front().convention == "dK and dV by query head");
}

}  // namespace tilescope
