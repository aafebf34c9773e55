// SPDX-License-Identifier: Apache-2.0
// The rules by which measurements made for single claims are judged.
#include "analysis/report/claims/device_claims.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/lower_bounds.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;

struct Asked {
  const char* kernel;
  AttentionProblem problem;
  Direction direction = Direction::forward;
  TileShape tile = {};
  Variant variant = Variant::own;
};

/// A run by formula, with its bytes for counters' where `counted`.
RunEntry run_of(const Asked& asked, bool counted) {
  const Kernel& kernel = find_gpu_kernel(asked.kernel).row;
  ProgramOptions options = kernel.default_options(asked.problem);
  options.variant = asked.variant;
  if (asked.tile.block_m > 0) options.set_tile(asked.direction, asked.tile);
  const Machine machine = load_machine("h200");
  const Direction directions[] = {asked.direction};
  RunEntry run =
      simulate_run(kernel, asked.problem, plan_passes(kernel, asked.problem, directions, options, machine),
                   machine, {.replay = false, .predict = false});
  const std::vector<TileProgram> programs = kernel.programs(asked.direction, asked.problem, options);
  for (std::size_t i = 0; i < run.passes.size(); ++i) {
    PassRecord& pass = run.passes[i];
    if (!counted) continue;
    pass.launch = LaunchRecord{.registers = std::nullopt,
                               .shared_bytes = kernel.launch_shape(programs[i], kSm90).shared_bytes};
    pass.measured = MeasuredBytes{pass.closed_form->sm_l2_read_bytes, pass.closed_form->sm_l2_write_bytes,
                                  pass.closed_form->sm_l2_read_bytes, pass.closed_form->sm_l2_write_bytes};
  }
  return run;
}

AttentionProblem square(std::int64_t heads, std::int64_t seqlen, std::int64_t head_dim) {
  return {.heads = heads,
          .heads_kv = heads,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .dtype = ElementType::fp16};
}

RunRecord record_on(const char* device, std::vector<RunEntry> runs) {
  RunRecord record = fixed_record(std::move(runs));
  record.machine.name = device;
  return record;
}

void set_time(RunEntry& run, double seconds) {
  for (PassRecord& pass : run.passes) pass.time = std::nullopt;
  for (PassRecord& pass : run.passes) {
    const double share = &pass == &run.passes.front() ? seconds : 0;
    pass.time = TimeRecord{share, share, 0, {share * 0.999, share, share * 1.001, share}};
  }
}

/// What judges, of records, which must outlive it.
Judgement judged(Judgement (*judge)(const Evidence&), const std::vector<RunRecord>& records) {
  Evidence evidence;
  evidence.on_device = summarize(records);
  return judge(evidence);
}

TEST_CASE("Theorem 2 on a device: c at three budgets of M, in the shared memory that a CTA takes") {
  std::vector<RunEntry> runs;
  for (const std::int64_t seqlen : {4096, 8192}) {
    for (const int keys : {64, 128, 256})
      runs.push_back(run_of({"gpu:flash1-mma", square(2, seqlen, 64), Direction::forward, {64, keys}}, true));
  }
  std::vector<RunRecord> records = {record_on("NVIDIA H200", runs)};
  const std::vector<RunSummary> summaries = summarize(records);
  const std::vector<BlockPoint> points = block_points(summaries);
  REQUIRE(points.size() == 6);
  // K, V and two tiles of Q; a kv tile costs Q once and O, in fp32, twice.
  CHECK(points[0].fast == 4 * 64 * 64);
  CHECK(points[0].constant() == doctest::Approx(5.0 * 4).epsilon(0.05));
  CHECK(points[2].constant() > 5.0 * 2.5);  // and what is moved once, O's initialisation and conversion
  CHECK(points[5].constant() > 5.0 * 2.5);
  CHECK(points[5].constant() < points[2].constant());
  CHECK(points[2].constant() < 5.0 * 2.5 + 2);
  CHECK(points[2].by_rule());
  const Judgement holds = judged(flash_on_device_forward, records);
  CHECK(holds.verdict == Verdict::holds);
  CHECK(contains(holds.sentence, "gpu:flash1-mma fp16 c = "));
  CHECK(judged(flash_on_device_backward, records).verdict == Verdict::not_tested);
  // As many accesses at the largest block as at the smallest: more memory then saves nothing.
  for (RunEntry& run : records[0].runs) {
    const std::size_t of = run.problem.seqlen_q == 4096 ? 0 : 3;
    for (std::size_t i = 0; i < run.passes.size(); ++i)
      run.passes[i].measured = records[0].runs[of].passes[i].measured;
  }
  CHECK(judged(flash_on_device_forward, records).verdict == Verdict::fails);
  records[0].runs.erase(records[0].runs.begin() + 2, records[0].runs.end());
  CHECK(judged(flash_on_device_forward, records).verdict == Verdict::not_tested);  // two budgets
}

TEST_CASE("Theorem 2 at DRAM is judged at lengths with M <= N d alone") {
  const double elements = static_cast<double>(chip_memory(load_machine("h200")).bytes_per_processor) / 2;
  const auto records_with = [](double exponent) {
    std::vector<RunEntry> runs;
    for (const std::int64_t seqlen : {131072, 262144, 524288, 1048576}) {
      RunEntry run = run_of({"gpu:flash3", square(1, 65536, 128)}, true);
      run.problem = square(1, seqlen, 128);
      run.passes.resize(1);
      run.passes[0].measured->dram_read_bytes = std::llround(1e9 * std::pow(seqlen / 131072.0, exponent));
      runs.push_back(run);
    }
    return std::vector<RunRecord>{record_on("NVIDIA H200", runs)};
  };
  REQUIRE(elements <= 524288.0 * 128);
  REQUIRE(elements > 262144.0 * 128);
  const Judgement square_law = judged(flash_at_dram, records_with(2));
  CHECK(square_law.verdict == Verdict::holds);
  CHECK(contains(square_law.sentence, "at 2 lengths"));
  CHECK(judged(flash_at_dram, records_with(0.5)).verdict == Verdict::fails);
}

TEST_CASE("Figure 2: time against bytes over blocks, and against the share of blocks") {
  const auto blocks = [](double slower) {
    std::vector<RunEntry> runs;
    double seconds = 8e-3;
    for (const int keys : {64, 128, 256}) {
      AttentionProblem problem = square(16, 1024, 64);
      problem.batch = 64;
      runs.push_back(run_of({"gpu:flash1-mma", problem, Direction::forward, {64, keys}}, true));
      set_time(runs.back(), seconds);
      seconds *= slower;
    }
    return std::vector<RunRecord>{record_on("NVIDIA H200", runs)};
  };
  // Half of a copy's rate, or next to nothing.
  const auto judged_beside = [&blocks](double slower, double copy) {
    const std::vector<RunRecord> records = blocks(slower);
    Evidence evidence;
    evidence.on_device = summarize(records);
    CeilingsRecord ceilings;
    ceilings.measured.device = "NVIDIA H200";
    MeasuredCeiling ceiling;
    ceiling.name = "dram_copy";
    ceiling.per_second = copy;
    ceilings.measured.ceilings = {ceiling};
    evidence.ceilings = {ceilings};
    return figure2_middle_time(evidence).verdict;
  };
  CHECK(judged_beside(0.53, 2e12) == Verdict::holds);
  CHECK(judged_beside(0.53, 2e14) == Verdict::in_part);  // falls, and not for bytes
  CHECK(judged_beside(1.2, 2e14) == Verdict::fails);

  const auto windows = [](double constant) {
    std::vector<RunRecord> records;
    for (const std::int64_t side : {-1, 128, 512}) {
      AttentionProblem problem = square(16, 4096, 64);
      problem.window_left = problem.window_right = side;
      RunEntry run = run_of({"gpu:flash2-mma", problem}, false);
      set_time(run, constant + 1e-15 * static_cast<double>(run.passes[0].executed_flops));
      records.push_back(record_on("NVIDIA H200", {run}));
    }
    return records;
  };
  CHECK(judged(figure2_right_time, windows(0)).verdict == Verdict::holds);
  CHECK(judged(figure2_right_time, windows(1)).verdict == Verdict::fails);  // whatever the window
}

TEST_CASE("a technique is worth time where resampling says so, and on the device that has both") {
  AttentionProblem problem = square(2, 1024, 128);
  const auto records_with = [&problem](double without) {
    std::vector<RunEntry> runs;
    for (const Variant variant : {Variant::own, Variant::no_overlap}) {
      runs.push_back(run_of({"gpu:flash3", problem, Direction::forward, {128, 128}, variant}, false));
      runs.back().passes.resize(1);
      set_time(runs.back(), variant == Variant::own ? 1e-3 : without);
    }
    return std::vector<RunRecord>{record_on("NVIDIA H100 80GB HBM3", runs)};
  };
  const std::vector<RunRecord> slower = records_with(1.2e-3);
  const std::vector<RunSummary> runs = summarize(slower);
  const std::vector<Worth> worth = worth_of(runs, "gpu:flash3", Variant::own, Variant::no_overlap);
  REQUIRE(worth.size() == 1);
  CHECK(worth[0].device == "an H100");
  CHECK(worth[0].ratio.by_medians == doctest::Approx(1.2).epsilon(0.01));
  CHECK(worth_of(runs, "gpu:flash3", Variant::own, Variant::serial).empty());
  CHECK(judged(table2_techniques, slower).verdict == Verdict::holds);
  CHECK(judged(overlap, slower).verdict == Verdict::holds);
  CHECK(judged(ping_pong, slower).verdict == Verdict::not_tested);
  CHECK(judged(table2_rates, slower).verdict == Verdict::not_comparable);  // another kernel than the paper's
  CHECK(judged(table2_techniques, records_with(1.0e-3)).verdict == Verdict::fails);
  CHECK(judged(table2_techniques, records_with(0.8e-3)).verdict == Verdict::fails);
}

TEST_CASE("normalising once and few heads: by counts and times of pairs") {
  std::vector<RunEntry> runs;
  for (const Variant variant : {Variant::own, Variant::normalised}) {
    runs.push_back(run_of({"gpu:flash2-mma", square(2, 1024, 64), Direction::forward, {}, variant}, true));
    const std::int64_t more = variant == Variant::own ? 1 : 2;
    runs.back().passes[0].counters = {{"smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", more},
                                      {"smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", more},
                                      {"smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", more},
                                      {"smsp__inst_executed.sum", more}};
    runs.push_back(run_of({"gpu:flash2-mma", square(2, 1024, 64), Direction::forward, {}, variant}, false));
    set_time(runs.back(), variant == Variant::own ? 1e-3 : 1.1e-3);
  }
  std::vector<RunRecord> records = {record_on("NVIDIA H200", runs)};
  CHECK(judged(normalised_once, records).verdict == Verdict::holds);
  set_time(records[0].runs[3], 0.9e-3);
  CHECK(judged(normalised_once, records).verdict == Verdict::in_part);

  std::vector<RunEntry> by_heads;
  for (const std::int64_t heads : {1, 16, 132}) {
    for (const char* kernel : {"gpu:flash1-mma", "gpu:flash2-mma"}) {
      by_heads.push_back(run_of({kernel, square(heads, 1024, 128)}, false));
      for (PassRecord& pass : by_heads.back().passes) pass.closed_form = std::nullopt;  // as `bench` has it
      const bool first = std::string(kernel) == "gpu:flash1-mma";
      set_time(by_heads.back(), first ? 1e-3 : 1e-3 * static_cast<double>(heads) / 132);
    }
  }
  CHECK(judged(few_heads_time, {record_on("NVIDIA H200", by_heads)}).verdict == Verdict::holds);
}

TEST_CASE("an H100's memories are judged by an H100's ceilings") {
  Evidence evidence;
  CeilingsRecord record;
  record.measured.device = "NVIDIA H200";
  MeasuredCeiling dram, shared;
  dram.name = "dram_read";
  dram.per_second = 3.2e12;
  shared.name = "shared_read";
  shared.per_second = 31e12;
  record.measured.ceilings = {dram, shared};
  evidence.device_ceilings = {record};
  CHECK(memories_of_h100(evidence).verdict == Verdict::not_tested);
  evidence.device_ceilings[0].measured.device = "NVIDIA H100 80GB HBM3";
  CHECK(memories_of_h100(evidence).verdict == Verdict::holds);
  evidence.device_ceilings[0].measured.ceilings[0].per_second = 1e12;
  CHECK(memories_of_h100(evidence).verdict == Verdict::in_part);
}

}  // namespace
}  // namespace tilescope
