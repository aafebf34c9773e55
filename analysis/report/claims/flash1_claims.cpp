// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "analysis/model/validation/paper_counts.hpp"
#include "analysis/model/validation/paper_values.hpp"
#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/bytes/extra_memory.hpp"
#include "analysis/report/sections/bytes/paper_scaling.hpp"
#include "analysis/report/sections/checks/figure2.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

bool in_hypotheses(const TheoremPoint& point) { return point.within_hypotheses(); }

Judgement exact(const Evidence& evidence) {
  const auto [cases, failed, kernels] = judged_cases(evidence.records);
  return judge_cases(
      static_cast<std::size_t>(cases - failed), static_cast<std::size_t>(cases),
      fmt::format(
          "cases of {} kernels are within their bound around fp64: twice the error of a "
          "plain implementation in the same type, for gradients three times, and what roundings may add",
          kernels));
}

Judgement flops(const Evidence& evidence) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  Range ranges[2];
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    ranges[direction == Direction::backward] =
        range_of_points(points, Algorithm::flash1, direction, in_hypotheses, [](const TheoremPoint& point) {
          return static_cast<double>(point.run->executed_flops) /
                 (point.seqlen * point.seqlen * point.head_dim);
        });
  }
  const bool both =
      verdict_of_constant(ranges[0]) == Verdict::holds && verdict_of_constant(ranges[1]) == Verdict::holds;
  return {points.empty() ? Verdict::not_tested
          : both         ? Verdict::holds
                         : Verdict::fails,
          fmt::format("{} N² d forward and {} backward", to_string(ranges[0]), to_string(ranges[1]))};
}

Judgement linear_memory(const Evidence& evidence) {
  std::size_t flash = 0, linear = 0;
  double standard = 0;
  for (const ExtraMemory& memory : extra_memory(evidence.runs)) {
    if (memory.last->algorithm == Algorithm::standard) {
      standard = std::max(standard, memory.exponent.value_or(0));
      continue;
    }
    ++flash;
    linear += memory.exponent.value_or(0) <= kMostOfLinear;
  }
  return judge_cases(
      linear, flash,
      fmt::format("sweeps of flash kernels take memory beside inputs and outputs that grows at "
                  "most as N^{:.2f}; standard attention's grows as N^{:.2f}",
                  kMostOfLinear, standard));
}

/// Of standard attention's accesses: over all points that meet the hypotheses, and over those with M >= d^2.
Judgement standard_growth(const Evidence& evidence, Direction direction) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  const auto value = [](const TheoremPoint& point) { return point.of_standard(); };
  const Range all = range_of_points(points, Algorithm::standard, direction, in_hypotheses, value);
  const Range large = range_of_points(
      points, Algorithm::standard, direction,
      [](const TheoremPoint& point) {
        return point.within_hypotheses() && point.fast >= 2 * point.head_dim * point.head_dim;
      },
      value);
  const Verdict everywhere = verdict_of_constant(all), mostly = verdict_of_constant(large);
  const Verdict verdict =
      everywhere == Verdict::fails && mostly == Verdict::holds ? Verdict::in_part : everywhere;
  return {
      verdict,
      fmt::format("accesses are {} (N d + N²) for M >= 2 d², and up to {} below, where products themselves "
                  "re-read their operands: Algorithm 0 takes them as read once",
                  to_string(large), format_number(all.high))};
}
Judgement standard_forward(const Evidence& evidence) { return standard_growth(evidence, Direction::forward); }
Judgement standard_backward(const Evidence& evidence) {
  return standard_growth(evidence, Direction::backward);
}

Judgement flash_growth(const Evidence& evidence, Direction direction) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  const auto c = [](const TheoremPoint& point) { return point.of_flash(); };
  const Range all = range_of_points(points, Algorithm::flash1, direction, in_hypotheses, c);
  return {verdict_of_constant(all), fmt::format("c = {} at {} points", to_string(all), all.count)};
}
Judgement flash_forward(const Evidence& evidence) { return flash_growth(evidence, Direction::forward); }
Judgement flash_backward(const Evidence& evidence) { return flash_growth(evidence, Direction::backward); }

Judgement sparsity(const Evidence& evidence) {
  Range ranges[2] = {{HUGE_VAL, 0, 0}, {HUGE_VAL, 0, 0}};
  double least = 1;
  for (const SparsityPoint& point : sparsity_points(evidence.sparsity)) {
    Range& range = ranges[point.run->direction == Direction::backward];
    range.low = std::min(range.low, point.accesses);
    range.high = std::max(range.high, point.accesses);
    ++range.count;
    least = std::min(least, point.share);
  }
  const Verdict forward = verdict_of_constant(ranges[0]), backward = verdict_of_constant(ranges[1]);
  return {
      forward == backward ? forward : Verdict::in_part,
      fmt::format("accesses over N d + s N² d² / M are {} forward, {} backward, for s from {:.1f} % to 100 %",
                  to_string(ranges[0]), to_string(ranges[1]), 100 * least)};
}

constexpr double kPrinted = 0.05;  // of numbers with two digits

Judgement figure2_flops(const Evidence& evidence) {
  const auto passes = figure2_passes(evidence.runs);
  if (!passes) return {};
  const PaperFigure2Left& printed = kPaperFigure2Left[0];
  return judge_number(
      {}, {}, printed.standard_gflop, passes->standard_gflop, kPrinted,
      fmt::format("{:.0f} and {:.0f} GFLOP are executed, {} and {} are printed", passes->standard_gflop,
                  passes->flash_gflop, printed.standard_gflop, printed.flash_gflop));
}

Judgement figure2_bytes(const Evidence& evidence) {
  const auto passes = figure2_passes(evidence.runs);
  if (!passes) return {};
  const PaperFigure2Left& printed = kPaperFigure2Left[0];
  const auto near = [](double a, double b) { return std::abs(a / b - 1) <= kPrinted; };
  const std::size_t agree = near(passes->standard_printed_gigabytes, printed.standard_gigabytes) +
                            near(passes->flash_printed_gigabytes, printed.flash_gigabytes);
  return judge_cases(
      agree, 2,
      fmt::format("numbers are those of Algorithms 0 to 4 as printed: {:.1f} and {:.1f} GB, the "
                  "paper has {} and {}",
                  passes->standard_printed_gigabytes, passes->flash_printed_gigabytes,
                  printed.standard_gigabytes, printed.flash_gigabytes) +
          unfused_bytes(evidence));
}

Judgement figure2_ratio(const Evidence& evidence) {
  const auto device = figure2_on_device(evidence.runs);
  if (!device) return {};
  const PaperFigure2Left& printed = kPaperFigure2Left[0];
  return judge_number(
      {"an A100", "PyTorch's with mask and dropout, and FlashAttention's", "HBM, by count or counter"},
      {device->device, fmt::format("{} and {}", device->baseline, device->last), "DRAM, by counter"},
      printed.standard_gigabytes / printed.flash_gigabytes, device->dram_ratio, kPrinted,
      fmt::format("{} has {:.2f} times fewer DRAM bytes than {}, {} {:.2f} times", device->last,
                  device->dram_ratio, device->baseline, device->flash, device->flash_dram_ratio) +
          order_bytes(evidence));
}

Judgement figure2_times(const Evidence& evidence) {
  const auto device = figure2_on_device(evidence.runs);
  if (!device) return {};
  const PaperFigure2Left& printed = kPaperFigure2Left[0];
  return judge_number({"an A100", "tensor cores on both sides", ""}, {device->device, device->units, ""},
                      printed.standard_milliseconds / printed.flash_milliseconds, device->time_ratio,
                      kPrinted,
                      (device->one_unit ? fmt::format("{:.2f} times less time", device->time_ratio)
                                        : "No ratio of their times is given: not the order alone differs") +
                          order_times(evidence) + unfused_time(evidence));
}

Judgement figure1_left(const Evidence& evidence) {
  std::string text;
  const CeilingsRecord* any = nullptr;
  double first = 0;
  for (const std::vector<CeilingsRecord>* records : {&evidence.device_ceilings, &evidence.ceilings}) {
    for (const CeilingsRecord& record : *records) {
      const MeasuredCeiling* shared = find_ceiling(record, "shared_read");
      const MeasuredCeiling* dram = find_ceiling(record, "dram_read");
      if (shared == nullptr || dram == nullptr) continue;
      const double ratio = shared->per_second / dram->per_second;
      if (any == nullptr) first = ratio;
      if (any == nullptr) any = &record;
      text += fmt::format("{}{} {:.1f} times ({} over {})", text.empty() ? "" : ", ", record.measured.device,
                          ratio, ceiling_text(*shared), ceiling_text(*dram));
    }
  }
  if (any == nullptr) return {};
  return judge_number({"an A100", "", ""}, {any->measured.device, "", ""}, 12.7, first, kPrinted,
                      "Shared memory over DRAM, as measured: " + text);
}

/// Device memory of standard attention over FlashAttention-2's, by length.
Judgement memory_ratio(const Evidence& evidence) {
  constexpr double kPrintedRatio = 20;
  std::map<std::int64_t, double> ratios;
  const auto taken = [](const RunSummary& run) {
    const auto found = run.run->device_bytes.find("backward");
    return found == run.run->device_bytes.end() ? 0.0 : static_cast<double>(found->second);
  };
  for (const RunSummary& standard : evidence.runs) {
    if (standard.run->kernel != "gpu:standard" || standard.direction != Direction::backward) continue;
    for (const RunSummary& flash : evidence.runs) {
      if (flash.record != standard.record || flash.run->kernel != "gpu:flash2-mma" ||
          flash.direction != Direction::backward || flash.problem() != standard.problem() ||
          taken(flash) <= 0 || taken(standard) <= 0 || flash.problem().seqlen_q != flash.problem().seqlen_k) {
        continue;
      }
      ratios[flash.problem().seqlen_q] = taken(standard) / taken(flash);
    }
  }
  std::size_t grew = 0;
  std::string text;
  double before = 0, most = 0;
  for (const auto& [seqlen, ratio] : ratios) {
    grew += before > 0 && ratio > before;
    before = ratio;
    most = std::max(most, ratio);
    text += fmt::format("{}{}: {:.1f}", text.empty() ? "" : ", ", seqlen, ratio);
  }
  if (ratios.size() < 2) return {};
  return judge_cases(
      grew + (most >= kPrintedRatio), ratios.size(),
      fmt::format("steps to a longer N raise gpu:standard's memory over gpu:flash2-mma's or pass {:g} "
                  "times, backward, by N: {}; tensors have no noise",
                  kPrintedRatio, text));
}

Judgement long_sequences(const Evidence& evidence) {
  constexpr std::int64_t kPrintedLength = 65536;
  std::size_t long_enough = 0;
  std::int64_t most = 0;
  for (const std::vector<RunSummary>* runs : {&evidence.runs, &evidence.on_device}) {
    for (const RunSummary& run : *runs) {
      if (!run.measured_dram || !run.algorithm || *run.algorithm == Algorithm::standard) continue;
      long_enough += run.problem().seqlen_k >= kPrintedLength;
      most = std::max(most, run.problem().seqlen_k);
    }
  }
  return judge_cases(long_enough, long_enough,
                     fmt::format("directions of N >= 64K ran and were counted, up to N = {}", most));
}

Judgement figure2_middle(const Evidence& evidence) {
  const std::vector<Figure2Block> blocks = figure2_blocks(evidence.runs);
  const auto agree = std::ranges::count_if(blocks, [](const Figure2Block& block) {
    return std::abs(block.counted_gigabytes - block.printed_gigabytes) <= 0.05;
  });
  return judge_cases(static_cast<std::size_t>(agree), blocks.size(),
                     "block sizes have the bytes read off the drawing, by the count (3 Tc + 1) N d of 2-byte "
                     "elements");
}

constexpr Claim kFlash1Claims[] = {
    {"Theorem 1", "the output is exact", "-", "-", "every kernel against an untiled fp64 attention", exact,
     "[errors](report.md#errors)"},
    {"Theorem 1", "O(N² d) FLOP", "-", "-", "operations of the tile programs over M, d and N", flops,
     "[constants](report.md#constants), [counted](report.md#work)"},
    {"Theorem 1", "O(N) memory beside inputs and outputs", "device memory", "-",
     "the driver's count, less inputs and outputs", linear_memory, "[memory](report.md#memory)"},
    {"Theorem 2", "standard attention makes Θ(N d + N²) accesses", "SM<->L2", "d <= M <= N d",
     "formula at the paper's blocks over M, d and N", standard_forward, "[constants](report.md#constants)"},
    {"Theorem 2", "FlashAttention makes Θ(N² d² / M)", "SM<->L2", "d <= M <= N d",
     "formula at the paper's blocks over M, d and N, M < d² among them", flash_forward,
     "[constants](report.md#constants)"},
    {"Theorem 2", "the same on a device", "SM<->L2", "d <= M <= N d",
     "counters of gpu:flash1 and gpu:flash1-mma over M and N", flash_on_device_forward,
     "[records](data/claims/README.md), [every byte](report.md#account)"},
    {"Theorem 2", "the same at DRAM", "DRAM",
     "d <= M <= N d, M the L2 and all SMs; no block is made for it, the cache does what it does",
     "counters over N, one head", flash_at_dram,
     "[records](data/claims/README.md), [local exponents](report.md#growth)"},
    {"Proposition 3", "no exact algorithm makes o(N² d² / M) for all M", "slow memory", "d <= M <= N d", "-",
     nullptr,
     "an end-point argument (at M = Θ(N d) inputs alone are as many): no measurement can bear on it. For "
     "each M: "
     "[lower bounds](#lower-bounds)"},
    {"Theorem 5", "standard attention's backward pass makes Θ(N d + N²) accesses", "SM<->L2", "d <= M <= N d",
     "as Theorem 2", standard_backward, "[constants](report.md#constants)"},
    {"Theorem 5", "FlashAttention's makes Θ(N² d² / M)", "SM<->L2", "d <= M <= N d", "as Theorem 2",
     flash_backward, "[constants](report.md#constants)"},
    {"Theorem 5", "the same on a device", "SM<->L2", "d <= M <= N d", "counters of gpu:flash1 over M and N",
     flash_on_device_backward, "[records](data/claims/README.md)"},
    {"Proposition 4", "block-sparse FlashAttention makes Θ(N d + s N² d² / M), s the share of blocks",
     "SM<->L2", "d <= M <= N d", "formula under windows", sparsity, "[sparsity](report.md#sparsity)"},
    {"Figure 1, left", "an A100's SRAM is 13 times as fast as its HBM (19 TB/s, 1.5 TB/s)", "-", "A100",
     "ceilings", figure1_left,
     "[records](data/claims/README.md); of an H200 in [rooflines](report.md#roofline)"},
    {"Figure 1, right", "7.6 times faster than PyTorch on GPT-2's attention", "time", "A100", "bench",
     figure1_right, "[records](data/claims/README.md)"},
    {"Figure 2, left", "GFLOP of GPT-2 medium", "-", "-", "operations of the same products", figure2_flops,
     "[Figure 2](report.md#paper-figure2)"},
    {"Figure 2, left", "GB of GPT-2 medium", "not said", "-", "Algorithms 0 to 4 as printed", figure2_bytes,
     "[Figure 2](report.md#paper-figure2), [records](data/claims/README.md)"},
    {"Figure 2, left; abstract", "up to nine times fewer HBM accesses", "HBM", "GPT-2 medium on an A100",
     "counters", figure2_ratio, "[Figure 2](report.md#paper-figure2)"},
    {"Figure 2, left", "5.7 times less time", "time", "GPT-2 medium on an A100", "bench", figure2_times,
     "[records](data/claims/README.md)"},
    {"Figure 2, left; Section 3.2", "more FLOP, and less time for fewer bytes", "time, DRAM", "GPT-2 medium",
     "standard attention's order and FlashAttention's, the same tiles and tensor cores", order_alone,
     "[records](data/claims/README.md)"},
    {"Figure 2, middle", "bytes against the block size", "not said", "forward", "count", figure2_middle,
     "[Figure 2](report.md#paper-figure2)"},
    {"Figure 2, middle", "time falls with bytes up to blocks of 256 keys: bytes set the time", "time",
     "GPT-2 medium, forward", "one order on tensor cores, blocks of 64, 128 and 256 keys, timed and counted",
     figure2_middle_time, "[records](data/claims/README.md)"},
    {"Figure 2, right", "block-sparse time is proportional to s", "time", "N = 4K", "bench under windows",
     figure2_right_time, "[records](data/claims/README.md)"},
    {"Abstract; Section 3.3", "block-sparse FlashAttention is 2 to 4 times faster than FlashAttention",
     "time", "butterfly blocks, A100", "bench under windows", block_sparse_gain,
     "[records](data/claims/README.md)"},
    {"Figure 3, left; Section 4.3", "up to 3 times faster than exact baselines, N from 128 to 2K", "time",
     "A100, mask and dropout", "one order over the other by length", figure3_left,
     "[records](data/claims/README.md)"},
    {"Figure 3, right; Section 4.3", "memory beside standard attention's falls with N, to a twentieth",
     "device memory", "-", "the driver's count, inputs and outputs with it", memory_ratio,
     "[memory](report.md#memory)"},
    {"Section 4.3", "it scales to 64K", "device memory", "-", "kernels run on a device", long_sequences,
     "[records](report.md#records)"},
    {"Table 1", "BERT-large trains 15 % faster than MLPerf 1.1's record", "time", "8 A100s", "-", nullptr,
     "a race of whole runs to an accuracy, on data that is not here, against a program of 2021"},
    {"Table 2; abstract", "GPT-2 trains up to 3.5 times faster than Hugging Face's, to 1.7 than Megatron's",
     "time", "8 A100s", "a training step, attention fused and not", training_time,
     "[records](data/claims/README.md)"},
    {"Table 2", "a whole step gains by fused attention", "time, memory, DRAM", "GPT-2",
     "one model that takes both in turn", training_gains, "[records](data/claims/README.md)"},
    {"Table 3; abstract", "2.4 times faster on the long-range arena", "time", "A100s", "-", nullptr,
     "six trained tasks, whose data are not here; their attention is that of the rows above"},
    {"Table 4", "GPT-2 small at 4K trains 1.3 times faster than Megatron's at 1K, with better perplexity",
     "time, quality", "8 A100s", "-", nullptr,
     "a run of days; the output is exact, so no kernel decides quality"},
    {"Tables 5, 6", "longer documents are classified better; first better than chance on Path-X and Path-256",
     "quality", "trained models", "-", nullptr, "of models, which exact attention of any order would give"},
    {"Figure 4", "the loss of training is the same curve", "quality", "trained models", "-", nullptr,
     "follows from Theorem 1; a run of days would show it again"},
    {"Table 7", "as fast as Apex's FMHA up to N = 512", "time", "A100", "-", nullptr,
     "a library of 2021 for one head dimension, which is not kept for today's devices"},
    {"Figures 5 to 8, Tables 8 to 21", "times and memory on A100, RTX 3090 and T4", "time, memory",
     "those GPUs", "-", nullptr, "none of them is at hand; others' times do not compare"},
};

}  // namespace

std::span<const Claim> flash1_claims() { return kFlash1Claims; }

}  // namespace tilescope
