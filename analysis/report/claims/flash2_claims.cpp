// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/bytes/extra_memory.hpp"
#include "analysis/report/sections/bytes/paper_scaling.hpp"
#include "analysis/report/sections/report_sections.hpp"

namespace tilescope {
namespace {

constexpr const char* kAlgorithm2 = "FlashAttention-2's kernels of 2023";

/// Products of N x N x d that the tensor cores executed.
std::optional<double> products(const RunSummary& run) {
  const auto operations = counted(run, "tensor_fp16_ops");
  if (!operations) return std::nullopt;
  return *operations / (static_cast<double>(useful_flops(run.problem(), Direction::forward)) / 2);
}

Judgement five_products(const Evidence& evidence) {
  constexpr double kNear = 0.01;
  std::size_t agree = 0, all = 0;
  std::vector<std::string> seen;
  for (const RunSummary& run : evidence.runs) {
    const auto found = products(run);
    if (!found || run.problem().masked()) continue;
    const BackwardOrder order = run.passes.back()->choices.backward.value_or(BackwardOrder::fused);
    const double expected = run.direction == Direction::forward ? 2 : order == BackwardOrder::fused ? 5 : 7;
    ++all;
    agree += std::abs(*found / expected - 1) <= kNear;
    add_new(seen, fmt::format("{} {:.2f}", run.label, *found));
  }
  return judge_cases(
      agree, all,
      fmt::format("directions have 2, 5, and with a pass for dQ 7 products: {}", fmt::join(seen, ", ")));
}

/// Both splits of keys and queries over warps, at one tile: what split-k does more.
Judgement split_of_warps(const Evidence& evidence) {
  for (const RunSummary& keys : evidence.runs) {
    if (keys.run->kernel != "gpu:split-k" || !counted(keys, "shared_load_bytes")) continue;
    for (const RunSummary& rows : evidence.runs) {
      if (rows.run->kernel != "gpu:flash2-mma" || rows.problem() != keys.problem() ||
          rows.tile != keys.tile || rows.record != keys.record) {
        continue;
      }
      const double loads = *counted(keys, "shared_load_bytes") / *counted(rows, "shared_load_bytes");
      const double stores = *counted(keys, "shared_store_bytes") / *counted(rows, "shared_store_bytes");
      const TimedPair pair{&rows, &keys};
      const RateRatio time = rate_ratio(std::span(&pair, 1));
      return judge_cases(
          (loads > 1) + (stores > 1) + (time.low > 1), 3,
          fmt::format("measures are worse where warps split the keys, all else the same: {:.2f} "
                      "times the loads, {:.0f} times the stores, {} times the time",
                      loads, stores, time.text()));
    }
  }
  return {};
}

/// By formula: what is computed with a causal mask, of what is without.
Judgement causal_blocks(const Evidence& evidence) {
  constexpr double kHalf = 0.1;  // the diagonal's blocks are whole
  std::vector<double> shares;
  for (const RunSummary& run : evidence.runs) {
    const AttentionProblem& p = run.problem();
    if (run.algorithm != Algorithm::flash2 || !p.causal || p.windowed() || p.seqlen_q != p.seqlen_k ||
        run.direction != Direction::forward || !run.closed_form || p.seqlen_q < 4096) {
      continue;
    }
    AttentionProblem whole = p;
    whole.causal = false;
    shares.push_back(static_cast<double>(run.executed_flops) /
                     static_cast<double>(useful_flops(whole, Direction::forward)));
  }
  if (shares.empty()) return {};
  const auto agree =
      std::ranges::count_if(shares, [](double share) { return std::abs(share - 0.5) <= kHalf * 0.5; });
  const auto [low, high] = std::ranges::minmax(shares);
  return judge_cases(
      static_cast<std::size_t>(agree), shares.size(),
      fmt::format("problems of N >= 4K compute half, within a tenth: {:.3f} ... {:.3f} of all", low, high));
}

/// Times without a mask over times with a causal one, of the peer that is FlashAttention-2.
Judgement causal_time(const Evidence& evidence) {
  std::vector<TimedPair> pairs;  // masked, whole
  const std::vector<const RunSummary*> runs = timed_runs(evidence.runs, "pytorch:flash2", Direction::forward);
  for (const RunSummary* run : runs) {
    AttentionProblem open = run->problem();
    if (!open.causal || open.seqlen_q < 4096) continue;
    open.causal = false;
    const auto whole = std::ranges::find_if(
        runs, [&](const RunSummary* each) { return each->record == run->record && each->problem() == open; });
    if (whole != runs.end()) pairs.push_back({run, *whole});
  }
  if (pairs.empty()) return {};
  return judge_number(
      {"an A100", kAlgorithm2, ""}, {device_name(*pairs.front().ours), "those that PyTorch ships", ""}, 1.75,
      rate_ratio(pairs).by_medians, 0.05 / 1.75, fmt::format("Ratios at N >= 4K: {}", ratios_text(pairs)));
}

Judgement parallelism(const Evidence& evidence) {
  const std::vector<ParallelismPoint> points = parallelism_points(evidence.parallelism);
  std::size_t all = 0, agree = 0;
  std::string text;
  for (const ParallelismPoint& point : points) {
    if (point.run->algorithm != Algorithm::flash1) continue;
    const ParallelismPoint* other = find_point(points, Algorithm::flash2, point.run->direction, point.heads);
    if (other == nullptr || point.busy == 1) continue;  // heads alone fill the SMs
    ++all;
    agree += other->busy > point.busy;
    if (point.run->direction == Direction::forward)
      text += fmt::format("{}{}: {:.0f} and {:.0f} %", text.empty() ? "" : ", ", point.heads,
                          100 * point.busy, 100 * other->busy);
  }
  return judge_cases(agree, all,
                     fmt::format("cases with fewer heads than SMs keep more of them busy, by count of CTAs; "
                                 "forward, by heads: {}",
                                 text));
}

/// The best rate of the peer that is FlashAttention-2, beside a printed one of another device.
Judgement best_rate(const std::vector<RunSummary>& runs, const char* device, double printed) {
  constexpr double kNear = 0.05;  // of numbers with two digits
  std::string text;
  const RunSummary* forward = nullptr;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    const RunSummary* best = nullptr;
    for (const RunSummary* run : timed_runs(runs, "pytorch:flash2", direction)) {
      if (!has_paper_count(run->problem())) continue;
      if (best == nullptr || paper_rate_of(*run) > paper_rate_of(*best)) best = run;
    }
    if (best == nullptr) continue;
    if (direction == Direction::forward) forward = best;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(direction), rate_text(*best));
  }
  if (forward == nullptr) return {};
  return judge_number({device, kAlgorithm2, ""}, {short_device(*forward), "those that PyTorch ships", ""},
                      printed, 1e-12 * paper_rate_of(*forward), kNear, "At best " + text);
}
Judgement rates_of_a100(const Evidence& evidence) { return best_rate(evidence.runs, "an A100", 230); }
Judgement rates_of_h100(const Evidence& evidence) {
  const bool there = !timed_runs(evidence.on_device, "pytorch:flash2", Direction::forward).empty();
  return best_rate(there ? evidence.on_device : evidence.runs, "an H100", 335);
}

/// Of kernels that execute it: every case right, and memory beside inputs and outputs at most linear in N.
Judgement exact_and_linear(const Evidence& evidence) {
  std::vector<RunRecord> its_own = evidence.records;
  for (RunRecord& record : its_own)
    std::erase_if(record.runs, [](const RunEntry& run) { return run.algorithm != Algorithm::flash2; });
  const JudgedCases judged = judged_cases(its_own);
  std::size_t sweeps = 0, linear = 0;
  for (const ExtraMemory& memory : extra_memory(evidence.runs)) {
    if (memory.last->algorithm != Algorithm::flash2) continue;
    ++sweeps;
    linear += memory.exponent.value_or(0) <= kMostOfLinear;
  }
  return judge_cases(
      static_cast<std::size_t>(judged.cases - judged.failed) + linear,
      static_cast<std::size_t>(judged.cases) + sweeps,
      fmt::format("cases are right ({}) or sweeps take at most linear memory ({})", judged.cases, sweeps));
}

/// PyTorch's FlashAttention-2 over our kernels in Triton.
Judgement over_triton(const Evidence& evidence) {
  std::string text;
  const RunSummary* any = nullptr;
  double mean = 0;
  for (const std::vector<RunSummary>* runs : {&evidence.on_device, &evidence.runs}) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::vector<TimedPair> pairs = timed_pairs(*runs, "pytorch:flash2", "triton:tuned", direction);
      if (pairs.empty()) continue;
      if (any == nullptr) mean = rate_ratio(pairs).by_medians;
      any = pairs.front().ours;
      text += fmt::format("{}{} on {} {}", text.empty() ? "" : "; ", to_string(direction), short_device(*any),
                          ratios_text(pairs));
    }
  }
  if (any == nullptr) return {};
  return judge_number({"an A100", "FlashAttention in Triton, of 2022", ""},
                      {short_device(*any), "FlashAttention-2 in Triton 3, tuned", ""}, 1.9, mean, 0.3,
                      "PyTorch's FlashAttention-2 over it: " + text);
}

constexpr Claim kFlash2Claims[] = {
    {"Section 3.1", "the output is exact, with O(N² d) FLOP and O(N) memory", "device memory", "-",
     "its kernels against an untiled fp64 attention, the driver's count", exact_and_linear,
     "[errors](report.md#errors), [memory](report.md#memory)"},
    {"Sections 2.3, 3.1", "the backward pass has five products", "-", "-",
     "operations of the tensor cores, by counters", five_products, "[work](report.md#work)"},
    {"Section 3.1", "fewer operations beside the products, by normalising once", "-", "-",
     "one tensor-core kernel with a switch: operations, instructions, time", normalised_once,
     "[records](data/claims/README.md), [work](report.md#work)"},
    {"Section 3.1", "a causal mask lets about half of the blocks be skipped", "-", "N large",
     "operations of the tile programs", causal_blocks, "[bytes and tiles](report.md#diagonal)"},
    {"Section 3.1", "which makes it 1.7 to 1.8 times faster", "time", "A100", "bench", causal_time,
     "[rates](report.md#device-rates)"},
    {"Section 3.2", "CTAs over the sequence too keep a GPU busy where batch and heads are few", "SMs",
     "B x H below the number of SMs", "CTAs of the tile programs, 1 ... 132 heads", parallelism,
     "[parallelism](report.md#parallelism)"},
    {"Section 3.2", "which makes it faster the fewer heads there are", "time",
     "B x H below the number of SMs",
     "two orders on the same tiles of tensor cores, N8192 D128, 1 ... 132 heads", few_heads_time,
     "[records](data/claims/README.md)"},
    {"Section 3.3", "warps that split Q and not K exchange less through shared memory", "shared memory",
     "one tile", "two kernels that differ in the split alone, by counters", split_of_warps,
     "[work](report.md#work)"},
    {"Figures 4 to 6; abstract",
     "about twice FlashAttention's rate, 50 to 73 % of an A100's peak, up to 230 TFLOP/s", "time", "A100",
     "bench", rates_of_a100, "[rates](report.md#device-rates)"},
    {"Figure 7", "up to 335 TFLOP/s on an H100 without its new instructions", "time", "H100", "bench",
     rates_of_h100, "[rates](report.md#device-rates)"},
    {"Section 4.1", "1.3 to 2.5 times faster than FlashAttention in Triton", "time", "A100", "bench",
     over_triton, "[rates](report.md#device-rates)"},
    {"Section 4.1", "3 to 10 times faster than standard attention, forward and backward", "time", "A100",
     "one order over the other by length", flash2_over_standard, "[records](data/claims/README.md)"},
    {"Table 1", "GPT-style models train at up to 225 TFLOP/s a GPU", "time", "8 A100s", "-", nullptr,
     "training runs; `tilescope.torch` puts kernels into such a step once devices are at hand"},
};

}  // namespace

std::span<const Claim> flash2_claims() { return kFlash2Claims; }

}  // namespace tilescope
