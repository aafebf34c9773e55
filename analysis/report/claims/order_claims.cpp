// SPDX-License-Identifier: Apache-2.0
// What the order alone is worth, on the same tiles and tensor cores (gpu:standard-mma, gpu:flash1-mma,
// gpu:flash2-mma), and what attention is worth inside a training step.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr const char *kStandard = "gpu:standard-mma", *kFlash1 = "gpu:flash1-mma",
                     *kFlash2 = "gpu:flash2-mma";

bool is_gpt2_medium(const AttentionProblem& p) {
  return p.batch == 64 && p.heads == 16 && p.seqlen_q == 1024 && p.head_dim == 64 && !p.masked();
}

/// The run of a kernel with counters on a device, of GPT-2 medium.
const RunSummary* counted_run(const std::vector<RunSummary>& runs, const std::string& kernel,
                              Direction direction, const std::string& device) {
  const auto found = std::ranges::find_if(runs, [&](const RunSummary& run) {
    return run.run->kernel == kernel && run.direction == direction && run.measured_dram &&
           is_gpt2_medium(run.problem()) && !run.passes.front()->choices.variant &&
           device_name(run) == device;
  });
  return found == runs.end() ? nullptr : &*found;
}

double over(double a, double b) { return b == 0 ? 0 : a / b; }

/// Runs of a training step on a model: its name, and attention as it was written before it was fused and as a
/// fused kernel.
struct TrainingStep {
  std::string model;
  TimedPair pair;  // fused, unfused
};
std::vector<TrainingStep> training_steps(const std::vector<RunSummary>& runs) {
  constexpr std::string_view kFused = ", a training step, attention fused",
                             kUnfused = ", a training step, attention unfused";
  std::vector<TrainingStep> steps;
  for (const RunSummary& fused : runs) {
    const std::string& name = fused.run->kernel;
    if (!name.ends_with(kFused) || !fused.median_seconds) continue;
    const std::string model = name.substr(0, name.size() - kFused.size());
    for (const RunSummary& unfused : runs) {
      if (unfused.record == fused.record && unfused.problem() == fused.problem() && unfused.median_seconds &&
          unfused.run->kernel == model + std::string(kUnfused)) {
        steps.push_back({model, {&fused, &unfused}});
      }
    }
  }
  return steps;
}

double peak_bytes(const RunSummary& run) {
  const auto found = run.run->device_bytes.find("backward");
  return found == run.run->device_bytes.end() ? 0 : static_cast<double>(found->second);
}

/// "; 3.1 times fewer DRAM bytes, 41.3 for 129 GB": of a pair both of which were counted.
std::string dram_text(const RunSummary& fused, const RunSummary& unfused) {
  if (!fused.measured_dram || !unfused.measured_dram) return "";
  const double few = static_cast<double>(fused.measured_dram->total()),
               many = static_cast<double>(unfused.measured_dram->total());
  return fmt::format(", {:.2f} times fewer DRAM bytes ({} for {})", over(many, few), format_bytes(few),
                     format_bytes(many));
}

}  // namespace

Judgement order_alone(const Evidence& evidence) {
  std::size_t agree = 0, all = 0;
  std::string text;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const char* kernel : {kFlash1, kFlash2}) {
      for (const TimedPair& pair :
           timed_pairs(evidence.on_device, kernel, kStandard, direction, is_gpt2_medium)) {
        const std::string device = device_name(*pair.ours);
        const RunSummary* flash = counted_run(evidence.on_device, kernel, direction, device);
        const RunSummary* standard = counted_run(evidence.on_device, kStandard, direction, device);
        if (flash == nullptr || standard == nullptr) continue;
        const RateRatio time = rate_ratio(std::span(&pair, 1));
        const double bytes = over(static_cast<double>(standard->measured_dram->total()),
                                  static_cast<double>(flash->measured_dram->total()));
        all += 2;
        agree += (time.low > 1) + (bytes > 1);
        text += fmt::format(
            "; {} {} on {}: {} times less time, {:.2f} times fewer DRAM bytes, {:.2f} times the FLOP", kernel,
            to_string(direction), short_device(*pair.ours), time.text(), bytes,
            over(static_cast<double>(flash->executed_flops), static_cast<double>(standard->executed_flops)));
      }
    }
  }
  return judge_cases(agree, all,
                     "measures, time and DRAM bytes of each order and direction, are less than those of "
                     "gpu:standard-mma, on the same tiles and tensor cores" +
                         text);
}

std::string order_bytes(const Evidence& evidence) {
  std::string text;
  std::map<std::string, bool> seen;
  for (const RunSummary& run : evidence.on_device) {
    const std::string device = device_name(run);
    if (run.run->kernel != kStandard || seen[device]) continue;
    double bytes[2] = {0, 0};
    bool whole = true;
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const RunSummary* standard = counted_run(evidence.on_device, kStandard, direction, device);
      const RunSummary* flash = counted_run(evidence.on_device, kFlash2, direction, device);
      whole = whole && standard != nullptr && flash != nullptr;
      if (!whole) break;
      bytes[0] += static_cast<double>(standard->measured_dram->total());
      bytes[1] += static_cast<double>(flash->measured_dram->total());
    }
    seen[device] = true;
    if (!whole) continue;
    text += fmt::format(
        ". The order alone, on tensor cores on {}: gpu:flash2-mma has {:.2f} times fewer than "
        "gpu:standard-mma "
        "({} for {}, forward and backward)",
        short_device(run), over(bytes[0], bytes[1]), format_bytes(bytes[1]), format_bytes(bytes[0]));
  }
  return text;
}

std::string order_times(const Evidence& evidence) {
  std::string text;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const TimedPair& pair :
         timed_pairs(evidence.on_device, kFlash2, kStandard, direction, is_gpt2_medium)) {
      text +=
          fmt::format("{} {} on {} {}", text.empty() ? ". The order alone, on tensor cores:" : ",",
                      to_string(direction), short_device(*pair.ours), rate_ratio(std::span(&pair, 1)).text());
    }
  }
  return text;
}

Judgement figure1_right(const Evidence& evidence) {
  std::string text;
  const RunSummary* any = nullptr;
  double first = 0;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const TimedPair& pair :
         timed_pairs(evidence.on_device, "pytorch:flash2", "pytorch:math", direction, is_gpt2_medium)) {
      const RateRatio ratio = rate_ratio(std::span(&pair, 1));
      if (any == nullptr) first = ratio.by_medians;
      any = pair.ours;
      text += fmt::format("{}{} on {} {}", text.empty() ? "" : ", ", to_string(direction),
                          short_device(*pair.ours), ratio.text());
    }
  }
  if (any == nullptr) return {};
  return judge_number({"an A100", "PyTorch's attention of 2022, with mask and dropout", ""},
                      {short_device(*any), "PyTorch's of today, without either", ""}, 7.6, first, 0.05,
                      "Its products and softmax over its FlashAttention-2, GPT-2 medium: " + text);
}

namespace {

/// How many times as fast a kernel is as another on each device; `of_first` of the first direction there is.
struct KernelRates {
  std::string text;
  const RunSummary* any = nullptr;  // null where no problem was timed with both
  double of_first = 0;
};
KernelRates kernel_rates(const Evidence& evidence, const char* ours, const char* peer) {
  KernelRates rates;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    std::map<std::string, std::vector<TimedPair>> pairs;  // by device
    for (const TimedPair& pair : timed_pairs(evidence.on_device, ours, peer, direction))
      pairs[short_device(*pair.ours)].push_back(pair);
    for (const auto& [device, of_device] : pairs) {
      if (rates.any == nullptr) rates.of_first = rate_ratio(of_device).by_medians;
      rates.any = of_device.front().ours;
      rates.text += fmt::format("{}{} on {} {}", rates.text.empty() ? "" : "; ", to_string(direction), device,
                                ratios_text(of_device));
    }
  }
  return rates;
}

/// @param claimed  how many times as fast the paper says
Judgement over_standard(const Evidence& evidence, double claimed) {
  const KernelRates rates = kernel_rates(evidence, kFlash2, kStandard);
  if (rates.any == nullptr) return {};
  return judge_number(
      {"an A100", "the paper's kernel over a framework's standard attention", ""},
      {short_device(*rates.any), "one order over the other on the same tiles and tensor cores", ""}, claimed,
      rates.of_first, 0.5, "gpu:flash2-mma over gpu:standard-mma, N 512 ... 8K: " + rates.text);
}

}  // namespace

Judgement figure3_left(const Evidence& evidence) { return over_standard(evidence, 3); }
Judgement flash2_over_standard(const Evidence& evidence) { return over_standard(evidence, 6.5); }

Judgement flash3_over_standard(const Evidence& evidence) {
  const KernelRates rates = kernel_rates(evidence, "gpu:flash3", "pytorch:math");
  if (rates.any == nullptr) return {};
  return judge_number({"an H100", "FlashAttention-3's kernels", ""},
                      {short_device(*rates.any), "gpu:flash3", ""}, 9.5, rates.of_first, 0.7,
                      "gpu:flash3 over PyTorch's products and softmax: " + rates.text);
}

Judgement training_time(const Evidence& evidence) {
  std::string text;
  const std::vector<TrainingStep> steps = training_steps(evidence.on_device);
  if (steps.empty()) return {};
  for (const auto& [model, pair] : steps) {
    text += fmt::format(
        "{}{} on {}, {} sequences a step: {} times ({} for {}){}, {:.2f} times less memory "
        "at most ({} for {})",
        text.empty() ? "" : "; ", model, short_device(*pair.ours), pair.ours->problem().batch,
        rate_ratio(std::span(&pair, 1)).text(), format_seconds(*pair.ours->median_seconds),
        format_seconds(*pair.peer->median_seconds), dram_text(*pair.ours, *pair.peer),
        over(peak_bytes(*pair.peer), peak_bytes(*pair.ours)), format_bytes(peak_bytes(*pair.ours)),
        format_bytes(peak_bytes(*pair.peer)));
  }
  return judge_number(
      {"8 A100s", "FlashAttention in whole runs, over Hugging Face's and Megatron's of 2022", ""},
      {short_device(*steps.front().pair.ours),
       "FlashAttention-2 in single steps, over products, mask, softmax and dropout one by one", ""},
      3, rate_ratio(std::span(&steps.front().pair, 1)).by_medians, 0.05, text);
}

Judgement training_gains(const Evidence& evidence) {
  std::size_t agree = 0, all = 0;
  for (const auto& [model, pair] : training_steps(evidence.on_device)) {
    agree += rate_ratio(std::span(&pair, 1)).low > 1;
    agree += peak_bytes(*pair.peer) > peak_bytes(*pair.ours);
    all += 2;
    if (!pair.ours->measured_dram || !pair.peer->measured_dram) continue;
    agree += pair.peer->measured_dram->total() > pair.ours->measured_dram->total();
    ++all;
  }
  return judge_cases(agree, all,
                     "measures of a whole training step, time, memory and DRAM bytes, are less with "
                     "attention fused, all else the same: numbers above");
}

std::optional<Section> figure2_on_tensor_cores(const Evidence& evidence) {
  Table table{
      "GPT-2 medium (B64 H16 N1024 D64, fp16, without mask and dropout) on tensor cores: one order by the "
      "size of its blocks, "
      "then the orders at one size. Times are medians of single launches, L2 cold, with the standard error "
      "of 95 of 100.",
      {{"device"},
       {"direction"},
       {"kernel"},
       {"tile"},
       {"GB at SM<->L2", true},
       {"GB at DRAM", true},
       {"ms", true},
       {"of a copy's DRAM rate", true}},
      {}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const char* kernel : {kFlash1, kStandard, kFlash2}) {
      for (const RunSummary& run : evidence.on_device) {
        if (run.run->kernel != kernel || run.direction != direction || !run.measured_dram ||
            !run.measured_sm_l2 || !run.median_seconds || !is_gpt2_medium(run.problem())) {
          continue;
        }
        const double bytes = static_cast<double>(run.measured_dram->total());
        const double most = dram_copy_rate(evidence, device_name(run));
        table.rows.push_back(
            {short_device(run), std::string(to_string(direction)), run.run->kernel, to_string(run.tile),
             fmt::format("{:.2f}", 1e-9 * static_cast<double>(run.measured_sm_l2->total())),
             fmt::format("{:.2f}", 1e-9 * bytes), time_text(run),
             most == 0 ? "-" : fmt::format("{:.0f} %", 100 * bytes / *run.median_seconds / most)});
      }
    }
  }
  if (table.rows.empty()) return std::nullopt;
  std::ranges::stable_sort(table.rows, {}, [](const auto& row) { return row.front(); });
  return Section{"figure2-measured", "Figure 2 on tensor cores", {std::move(table)}};
}

}  // namespace tilescope
