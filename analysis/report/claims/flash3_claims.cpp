// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"

namespace tilescope {
namespace {

constexpr const char *kKernels3 = "FlashAttention-3's kernels", *kOurs = "gpu:flash3";
constexpr const char* kErrorPages =
    "[errors of the paper](report.md#paper-errors), [on devices](#errors-on-devices)";
constexpr double kPrinted3 = 0.05;  // of numbers with two digits

/// gpu:flash3's rates over a peer's on one device.
struct DeviceRatios {
  std::string device;
  std::vector<TimedPair> pairs;
};
/// The paper's device first, of the records for single claims; then that of all others.
std::vector<DeviceRatios> ratios_by_device(
    const Evidence& evidence, const std::string& peer, Direction direction,
    const std::function<bool(const AttentionProblem&)>& wanted = nullptr) {
  std::vector<DeviceRatios> found;
  for (const std::vector<RunSummary>* runs : {&evidence.on_device, &evidence.runs}) {
    for (const TimedPair& pair : timed_pairs(*runs, kOurs, peer, direction, wanted)) {
      const std::string device = short_device(*pair.ours);
      if (found.empty() || found.back().device != device) found.push_back({device, {}});
      // Of a problem that two records have, the later.
      std::vector<TimedPair>& pairs = found.back().pairs;
      const auto same = std::ranges::find_if(pairs, [&pair](const TimedPair& each) {
        return each.ours->problem() == pair.ours->problem() && each.ours->record != pair.ours->record;
      });
      if (same == pairs.end()) {
        pairs.push_back(pair);
      } else if (same->ours->record->when < pair.ours->record->when) {
        *same = pair;
      }
    }
  }
  return found;
}
std::string text_of(const std::vector<DeviceRatios>& all) {
  std::string text;
  for (const DeviceRatios& each : all)
    text += fmt::format("{}on {} {}", text.empty() ? "" : "; ", each.device, ratios_text(each.pairs));
  return text;
}

/// @param low, high that the paper prints
Judgement over_flash2(const Evidence& evidence, Direction direction, double low, double high) {
  const std::vector<DeviceRatios> found = ratios_by_device(evidence, "pytorch:flash2", direction);
  if (found.empty()) return {};
  const double middle = (low + high) / 2;
  return judge_number({"an H100", kKernels3, ""}, {found.front().device, kOurs, ""}, middle,
                      rate_ratio(found.front().pairs).by_medians, (high - low) / 2 / middle,
                      "gpu:flash3 over PyTorch's FlashAttention-2: " + text_of(found));
}
Judgement forward_over_flash2(const Evidence& evidence) {
  return over_flash2(evidence, Direction::forward, 1.5, 2.0);
}
Judgement backward_over_flash2(const Evidence& evidence) {
  return over_flash2(evidence, Direction::backward, 1.5, 1.75);
}

/// Problems on which it is faster; of the paper's kernels on its device they would be cases.
Judgement over_cudnn(const Evidence& evidence) {
  const std::vector<DeviceRatios> found =
      ratios_by_device(evidence, "pytorch:cudnn", Direction::forward,
                       [](const AttentionProblem& problem) { return problem.seqlen_q >= 1024; });
  if (found.empty()) return {};
  const std::vector<TimedPair>& pairs = found.front().pairs;
  const auto faster = std::ranges::count_if(
      pairs, [](const TimedPair& pair) { return *pair.ours->median_seconds < *pair.peer->median_seconds; });
  return judge_number({"an H100", kKernels3, "cuDNN of 2024"}, {found.front().device, kOurs, "a later cuDNN"},
                      static_cast<double>(pairs.size()), static_cast<double>(faster), 0,
                      "gpu:flash3 over cuDNN at N >= 1K: " + text_of(found));
}

/// The fastest of the kernel as it is.
const RunSummary* fastest(const std::vector<RunSummary>& runs, Direction direction, bool fp8) {
  const RunSummary* best = nullptr;
  for (const RunSummary* run : timed_runs(runs, kOurs, direction)) {
    if (is_fp8(run->problem().dtype) != fp8 || run->passes.front()->choices.variant) continue;
    if (!has_paper_count(run->problem())) continue;
    if (best == nullptr || paper_rate_of(*run) > paper_rate_of(*best)) best = run;
  }
  return best;
}

Judgement best_of(const Evidence& evidence, Direction direction, bool fp8, double printed) {
  const RunSummary* judged = nullptr;
  std::string text;
  for (const std::vector<RunSummary>* runs : {&evidence.on_device, &evidence.runs}) {
    const RunSummary* best = fastest(*runs, direction, fp8);
    if (best == nullptr) continue;
    if (judged == nullptr) judged = best;
    text += fmt::format("{}on {} {}, {}", text.empty() ? "" : "; ", short_device(*best), rate_text(*best),
                        problem_text(*best));
  }
  if (judged == nullptr) return {};
  return judge_number({"an H100", kKernels3, ""}, {short_device(*judged), kOurs, ""}, printed,
                      1e-12 * paper_rate_of(*judged), kPrinted3, "At best " + text);
}
Judgement best_forward(const Evidence& evidence) { return best_of(evidence, Direction::forward, false, 740); }
Judgement best_fp8(const Evidence& evidence) { return best_of(evidence, Direction::forward, true, 1200); }

/// FlashAttention-2's best forward rate, of the H100's 989 TFLOP/s.
Judgement flash2_share(const Evidence& evidence) {
  constexpr double kPeak = 989.4e12;
  const RunSummary* best = nullptr;
  for (const RunSummary* run : timed_runs(evidence.on_device, "pytorch:flash2", Direction::forward)) {
    if (short_device(*run) != "an H100" || !has_paper_count(run->problem())) continue;
    if (best == nullptr || paper_rate_of(*run) > paper_rate_of(*best)) best = run;
  }
  if (best == nullptr) return {};
  return judge_number({"", "FlashAttention-2's kernels of 2023", ""}, {"", "those that PyTorch ships", ""},
                      35, 100 * paper_rate_of(*best) / kPeak, kPrinted3,
                      fmt::format("At best {}, {:.0f} % of 989 TFLOP/s, on an H100, {}", rate_text(*best),
                                  100 * paper_rate_of(*best) / kPeak, problem_text(*best)));
}

constexpr Claim kFlash3Claims[] = {
    {"Figure 5; abstract", "forward 1.5 to 2.0 times FlashAttention-2's rate", "time", "H100, fp16", "bench",
     forward_over_flash2,
     "[speed](report.md#device-speed), [drawn problems, FlashAttention-4 beside](drawn/README.md)"},
    {"Figure 6; abstract", "backward 1.5 to 1.75 times", "time", "H100, fp16", "bench", backward_over_flash2,
     "[speed](report.md#device-speed), [drawn problems](drawn/README.md)"},
    {"Figure 5; abstract", "up to 740 TFLOP/s forward, 75 % of the peak", "time", "H100, fp16", "bench",
     best_forward, "[rates](report.md#device-rates)"},
    {"Figures 5, 6", "faster than cuDNN from N = 1K on", "time", "H100", "bench", over_cudnn,
     "[speed](report.md#device-speed)"},
    {"Figures 7, 9; abstract", "close to 1.2 PFLOP/s in fp8", "time", "H100, fp8", "bench", best_fp8,
     "[rates](report.md#device-rates)"},
    {"Section 4.1", "3 to 16 times faster than standard attention", "time", "H100, fp16", "bench",
     flash3_over_standard, "[records](data/claims/README.md)"},
    {"Section 1", "FlashAttention-2 reaches 35 % of an H100's peak", "time", "H100, fp16", "bench",
     flash2_share, "[records](data/claims/README.md)"},
    {"Section 3.1", "at head_dim 128 exponentials take half as long as products", "time of units",
     "B4 H16 N8448 D128, fp16", "counters of both pipes", exponential_share,
     "[records](data/claims/README.md)"},
    {"Table 1", "sizes and rates of an H100's memories", "-", "H100", "ceilings", memories_of_h100,
     "[records](data/claims/README.md); of an H200 in [rooflines](report.md#roofline)"},
    {"Table 2",
     "661 TFLOP/s, 582 without pipelining of products and softmax, 570 without warp specialization", "time",
     "B4 H16 N8448 D128 on an H100, fp16", "bench, one switch at a time", table2_rates,
     "[records](data/claims/README.md)"},
    {"Table 2", "both techniques are worth time (there 1.14 and 1.16 times)", "time", "the same problem",
     "bench, one switch at a time; loading warps are left out of gpu:flash3-basic, which has no other "
     "technique",
     table2_techniques, "[records](data/claims/README.md)"},
    {"Section 3.1",
     "ping-pong scheduling is worth time (there 570 to 620 ... 640 TFLOP/s, 1.09 ... 1.12 times)", "time",
     "the same problem", "gpu:flash3 without its order of turns", ping_pong,
     "[records](data/claims/README.md)"},
    {"Section 3.2, Figure 2",
     "softmax of one block hides behind the products of the next (there 620 ... 640 to 640 ... 660 TFLOP/s)",
     "time", "the same problem", "gpu:flash3, whose softmax waits for its own products; counters of pipes",
     overlap, "[records](data/claims/README.md)"},
    {"Appendix B, Figure 8", "three stages of pipelining are slower than two", "time", "H100", "-", nullptr,
     "no kernel here has three: a warpgroup would hold two tiles of scores beside P and O, more registers "
     "than a "
     "thread may have at tiles of 128x128"},
    {"Table 3", "RMSE in fp16: 3.2e-4 for a standard baseline, 1.9e-4 for FlashAttention-2 and -3",
     "error of O", "outliers as the paper draws them, shape not printed",
     "eight seeds at N8448 D128 against fp64", errors_fp16, kErrorPages},
    {"Table 3", "RMSE in fp8: 2.4e-2 with a scale a tensor, 9.1e-3 with blocks and incoherent processing",
     "error of O", "as above", "as above", errors_fp8, kErrorPages},
    {"Table 3; abstract", "2.6 times less error in fp8 than a baseline", "error of O", "as above", "as above",
     errors_fp8_ratio, kErrorPages},
};

}  // namespace

std::span<const Claim> flash3_claims() { return kFlash3Claims; }

std::optional<Section> libraries_by_device(const Evidence& evidence) {
  Table table{
      "Rates of gpu:flash3 over those of libraries on the same problems, fp16, each sampled in turn with it: "
      "least and most, "
      "and the geometric mean with what samples leave open.",
      {{"device"}, {"direction"}, {"over"}, {"problems", true}, {"ratios"}},
      {}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const char* peer :
         {"pytorch:flash2", "flash-attn:flash4", "pytorch:cudnn", "triton:tuned", "pytorch:math"}) {
      for (const DeviceRatios& each : ratios_by_device(evidence, peer, direction)) {
        table.rows.push_back({each.device, std::string(to_string(direction)), peer,
                              std::to_string(each.pairs.size()), ratios_text(each.pairs)});
      }
    }
  }
  if (table.rows.empty()) return std::nullopt;
  std::ranges::stable_sort(table.rows, {}, [](const auto& row) { return row.front(); });
  return Section{"libraries-by-device", "Libraries on two cards", {std::move(table)}};
}

}  // namespace tilescope
