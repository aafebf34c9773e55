// SPDX-License-Identifier: Apache-2.0
// What one technique is worth, by kernels that leave it out: see Variant.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/validation/paper_values.hpp"
#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"

namespace tilescope {
namespace {

Variant variant_of(const RunSummary& run) {
  const auto& variant = run.passes.front()->choices.variant;
  return variant ? parse_variant(*variant) : Variant::own;
}

/// ", in SM cycles 1.05": where power limits the clock, times hide a part of what a technique saves.
std::string cycles_text(const Worth& worth) {
  const auto cycles = [](const RunSummary& run) {
    const auto& time = run.passes.front()->time;
    return time && time->sm_clock_hz ? time->median_s * *time->sm_clock_hz : 0.0;
  };
  const double own = cycles(*worth.own), other = cycles(*worth.other);
  return own == 0 || other == 0 ? "" : fmt::format(", {:.3f} in SM cycles", other / own);
}

/// Cases in which the technique is worth time, beyond what samples leave open.
struct TechniqueCases {
  std::size_t agree = 0, all = 0;
  std::string text;

  void add(const Evidence& evidence, const std::string& kernel, Variant with, Variant without,
           const std::string& what) {
    for (const Worth& worth : worth_of(evidence.on_device, kernel, with, without)) {
      ++all;
      agree += worth.ratio.low > 1;
      text += fmt::format("{}{} on {}: {:.0f} for {:.0f} TFLOP/s, {} times{}", text.empty() ? "" : "; ", what,
                          worth.device, 1e-12 * paper_rate_of(*worth.own),
                          1e-12 * paper_rate_of(*worth.other), worth.ratio.text(), cycles_text(worth));
    }
  }
  Judgement judge(const std::string& rule) const { return judge_cases(agree, all, rule + ": " + text); }
};

constexpr const char* kWorth =
    "comparisons have a higher rate with it, all else the same and more than samples leave open";

/// Shares of time that a pipe was busy, all SMs together. [%]
struct PipeShares {
  double tensor = 0, exponential = 0;
};
std::optional<PipeShares> pipe_shares(const RunSummary& run) {
  constexpr double kLanes = 32;
  const PassRecord& pass = *run.passes.front();
  const auto number = [&pass](const char* counter) {
    const auto found = pass.counters.find(counter);
    if (found == pass.counters.end()) return 0.0;
    return std::visit([](auto value) { return static_cast<double>(value); }, found->second);
  };
  const auto machine = machine_of_device(device_name(run));
  const double cycles = number("gpu__time_duration.sum") * 1e-9 * number("sm__cycles_elapsed.avg.per_second");
  const auto tensor = counted(run, "tensor_pipe_active");
  if (!machine || !machine->exponentials_per_clock_per_sm || !tensor || cycles == 0) return std::nullopt;
  const double most = cycles * static_cast<double>(machine->sm_count.value) *
                      static_cast<double>(machine->exponentials_per_clock_per_sm->value);
  return PipeShares{*tensor, 100 * kLanes * number("sm__inst_executed_pipe_xu.sum") / most};
}

}  // namespace

std::vector<Worth> worth_of(const std::vector<RunSummary>& runs, const std::string& kernel, Variant with,
                            Variant without) {
  std::vector<Worth> found;
  std::vector<std::vector<TimedPair>> pairs;
  for (const RunSummary& own : runs) {
    if (own.run->kernel != kernel || !own.median_seconds || own.measured_sm_l2 || variant_of(own) != with)
      continue;
    const auto other = std::ranges::find_if(runs, [&](const RunSummary& each) {
      return each.record == own.record && each.run->kernel == kernel && each.problem() == own.problem() &&
             each.direction == own.direction && each.median_seconds && !each.measured_sm_l2 &&
             variant_of(each) == without;
    });
    if (other == runs.end()) continue;
    auto known = std::ranges::find_if(found, [&own](const Worth& worth) {
      return worth.device == short_device(own) && worth.own->problem() == own.problem();
    });
    if (known == found.end()) {
      found.push_back({short_device(own), &own, &*other, {}});
      pairs.emplace_back();
      known = found.end() - 1;
    }
    pairs[static_cast<std::size_t>(known - found.begin())].push_back({&own, &*other});
  }
  for (std::size_t i = 0; i < found.size(); ++i) found[i].ratio = rate_ratio(pairs[i]);
  return found;
}

Judgement normalised_once(const Evidence& evidence) {
  TechniqueCases cases;
  std::size_t fewer = 0, counts = 0;
  std::string text;
  for (const RunSummary& own : evidence.on_device) {
    if (own.run->kernel != "gpu:flash2-mma" || variant_of(own) != Variant::own || !counted(own, "fp32_ops"))
      continue;
    for (const RunSummary& each : evidence.on_device) {
      if (each.record != own.record || each.problem() != own.problem() ||
          variant_of(each) != Variant::normalised || !counted(each, "fp32_ops"))
        continue;
      const double pairs = static_cast<double>(useful_flops(own.problem(), Direction::forward)) / 4 /
                           static_cast<double>(own.problem().head_dim);
      const double operations = *counted(own, "fp32_ops"), more = *counted(each, "fp32_ops");
      const double instructions = *counted(each, "warp_instructions") / *counted(own, "warp_instructions");
      fewer += (more > operations) + (instructions > 1);
      counts += 2;
      text += fmt::format(
          "; head_dim {} on {}: {:.2f} operations a score for {:.2f}, one instruction for {:.3f}",
          own.problem().head_dim, short_device(own), operations / pairs, more / pairs, instructions);
    }
  }
  cases.add(evidence, "gpu:flash2-mma", Variant::own, Variant::normalised, "time");
  if (counts == 0 || cases.all == 0) return {};
  return judge_cases(
      fewer + cases.agree, counts + cases.all,
      fmt::format("measures are better where O is normalised once, at the end, and not at each step, on "
                  "the same tile of tensor cores{}; {}",
                  text, cases.text));
}

Judgement few_heads_time(const Evidence& evidence) {
  struct Pair {
    std::int64_t heads;
    RateRatio ratio;  // of gpu:flash2-mma over gpu:flash1-mma
  };
  std::vector<Pair> pairs;
  const RunSummary* any = nullptr;
  for (const RunSummary* flash1 : timed_runs(evidence.on_device, "gpu:flash1-mma", Direction::forward)) {
    for (const RunSummary* flash2 : timed_runs(evidence.on_device, "gpu:flash2-mma", Direction::forward)) {
      const bool heads_alone = flash1->problem().batch == 1;
      if (!heads_alone || flash1->record != flash2->record || flash1->problem() != flash2->problem())
        continue;
      const TimedPair times{flash2, flash1};
      pairs.push_back({flash1->problem().heads, rate_ratio(std::span(&times, 1))});
      any = flash1;
    }
  }
  if (pairs.size() < 2) return {};
  std::ranges::sort(pairs, {}, &Pair::heads);
  std::string text;
  std::size_t agree = 0;
  for (const auto& [heads, ratio] : pairs) {
    text += fmt::format("{}{}: {:.1f} ({:.1f} ... {:.1f})", text.empty() ? "" : ", ", heads, ratio.by_medians,
                        ratio.low, ratio.high);
    agree += heads < pairs.back().heads && ratio.low > pairs.back().ratio.high;
  }
  return judge_cases(
      agree, pairs.size() - 1,
      fmt::format("numbers of heads below {} gain more time by CTAs over the sequence than these do, "
                  "whose heads fill the SMs alone; gpu:flash1-mma's time over gpu:flash2-mma's on {}, "
                  "by heads: {}",
                  pairs.back().heads, short_device(*any), text));
}

Judgement memories_of_h100(const Evidence& evidence) {
  constexpr double kNear = 0.2;
  struct Printed {
    const char *memory, *ceiling;
    double per_second;
  };
  constexpr Printed kTable1[] = {
      {"HBM", "dram_read", 3.35e12}, {"L2", "sm_l2_read", 12e12}, {"shared memory", "shared_read", 31e12}};
  std::size_t agree = 0, all = 0;
  std::string text;
  for (const CeilingsRecord& record : evidence.device_ceilings) {
    if (record.measured.device.find("H100") == std::string::npos) continue;
    for (const auto& [memory, name, printed] : kTable1) {
      for (const MeasuredCeiling& ceiling : record.measured.ceilings) {
        if (ceiling.name != name) continue;
        ++all;
        agree += std::abs(ceiling.per_second / printed - 1) <= kNear;
        text += fmt::format("{}{} {} for {:.2f} TB/s", text.empty() ? "" : ", ", memory,
                            ceiling_text(ceiling), 1e-12 * printed);
      }
    }
    if (record.measured.l2_bytes > 0)
      text += fmt::format(", an L2 of {:.0f} MiB for 50",
                          static_cast<double>(record.measured.l2_bytes) / (1 << 20));
  }
  return judge_cases(agree, all, fmt::format("rates are reached within {:.0f} %: {}", 100 * kNear, text));
}

Judgement table2_rates(const Evidence& evidence) {
  std::string text;
  const RunSummary* first = nullptr;
  for (const Worth& worth : worth_of(evidence.on_device, "gpu:flash3", Variant::own, Variant::no_overlap)) {
    if (first == nullptr || worth.device == "an H100") first = worth.own;
    text += fmt::format("{}{}: {} and {}", text.empty() ? "" : "; ", worth.device, rate_text(*worth.own),
                        rate_text(*worth.other));
  }
  if (first == nullptr) return {};
  return judge_number({"an H100", "FlashAttention-3's kernels", ""}, {short_device(*first), "gpu:flash3", ""},
                      661, 1e-12 * paper_rate_of(*first), 0.05, "With and without its overlap, on " + text);
}

Judgement table2_techniques(const Evidence& evidence) {
  TechniqueCases cases;
  cases.add(evidence, "gpu:flash3", Variant::own, Variant::no_overlap, "softmax beside products, gpu:flash3");
  cases.add(evidence, "gpu:flash3-basic", Variant::own, Variant::unspecialised,
            "warps of their own that load, gpu:flash3-basic");
  return cases.judge(kWorth);
}

Judgement ping_pong(const Evidence& evidence) {
  TechniqueCases cases;
  cases.add(evidence, "gpu:flash3", Variant::no_overlap, Variant::serial,
            "without overlap within a warpgroup");
  cases.add(evidence, "gpu:flash3", Variant::own, Variant::no_ping_pong, "with it");
  return cases.judge(kWorth);
}

Judgement overlap(const Evidence& evidence) {
  TechniqueCases cases;
  cases.add(evidence, "gpu:flash3", Variant::own, Variant::no_overlap, "with ping-pong");
  cases.add(evidence, "gpu:flash3", Variant::no_ping_pong, Variant::serial, "without");
  std::string pipes;
  for (const RunSummary& run : evidence.on_device) {
    if (run.run->kernel != "gpu:flash3") continue;
    const auto shares = pipe_shares(run);
    if (!shares) continue;
    pipes += fmt::format("{}{} on {} {:.0f} and {:.0f} %", pipes.empty() ? "" : ", ",
                         to_string(variant_of(run)), short_device(run), shares->tensor, shares->exponential);
  }
  Judgement judgement = cases.judge(kWorth);
  if (!pipes.empty())
    judgement.sentence +=
        ". Tensor and exponential pipes are busy, which above 100 % together they can only be at the same "
        "time, by the other warpgroup's turn where not by their own's: " +
        pipes;
  return judgement;
}

Judgement exponential_share(const Evidence& evidence) {
  constexpr double kPrintedShare = 0.5, kNear = 0.1;
  std::size_t agree = 0, all = 0;
  std::string text;
  for (const RunSummary& run : evidence.on_device) {
    if (run.run->kernel != "gpu:flash3" || run.problem().head_dim != 128) continue;
    const auto shares = pipe_shares(run);
    if (!shares) continue;
    const double share = shares->exponential / shares->tensor;
    ++all;
    agree += std::abs(share / kPrintedShare - 1) <= kNear;
    text += fmt::format("{}{} on {} {:.2f}", text.empty() ? "" : ", ", to_string(variant_of(run)),
                        short_device(run), share);
  }
  return judge_cases(
      agree, all,
      fmt::format("launches keep the exponential pipe busy for half as long as the tensor cores, "
                  "within a tenth, by counters: {}",
                  text));
}

}  // namespace tilescope
