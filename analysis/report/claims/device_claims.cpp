// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/claims/device_claims.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/bytes/dram_growth.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Shared memory with which the CTAs of the pass that computes most were launched. [bytes]
std::optional<double> shared_bytes(const RunSummary& run) {
  const auto most =
      std::ranges::max_element(run.passes, {}, [](const PassRecord* pass) { return pass->executed_flops; });
  if (!(*most)->launch || !(*most)->launch->shared_bytes) return std::nullopt;
  return static_cast<double>(*(*most)->launch->shared_bytes);
}

double heads_of(const RunSummary& run) {
  return static_cast<double>(run.problem().batch * run.problem().heads);
}

void take_in(Range& range, double value) {
  range.low = range.count == 0 ? value : std::min(range.low, value);
  range.high = range.count == 0 ? value : std::max(range.high, value);
  ++range.count;
}

/// "gpu:flash1 fp16": what shares a constant.
std::string kind_of(const RunSummary& run) {
  return fmt::format("{} {}", run.run->kernel, to_string(run.problem().dtype));
}

/// Theorems 2 and 5 by counters: kernels of which the constant keeps within the rule, over three budgets or
/// more.
Judgement flash_on_device(const Evidence& evidence, Direction direction) {
  constexpr std::size_t kFewest = 3;
  std::map<std::string, Range> constants;
  std::map<std::string, std::set<double>> budgets;
  for (const BlockPoint& point : block_points(evidence.on_device)) {
    if (point.run->direction != direction || !point.by_rule() || !point.within_hypotheses()) continue;
    take_in(constants[kind_of(*point.run)], point.constant());
    budgets[kind_of(*point.run)].insert(point.fast);
  }
  std::size_t agree = 0, all = 0;
  std::string text;
  for (const auto& [kind, range] : constants) {
    if (budgets[kind].size() < kFewest) continue;
    ++all;
    agree += verdict_of_constant(range) == Verdict::holds;
    text += fmt::format("; {} c = {}, {} points with M from {:.0f}K to {:.0f}K", kind, to_string(range),
                        range.count, *budgets[kind].begin() / 1024, *budgets[kind].rbegin() / 1024);
  }
  return judge_cases(
      agree, all,
      "kernels keep c within the rule at blocks as Algorithm 1 has them, with M the shared memory "
      "of a CTA [elements]" +
          text);
}

/// DRAM reads of a sweep over N² d² / M where M <= N d, with M the L2 and all that SMs hold.
Range dram_constants(const DramSweep& sweep) {
  Range range;
  const double d = static_cast<double>(sweep.last->problem().head_dim);
  for (const DramPoint& point : sweep.points) {
    if (sweep.chip_elements == 0 || sweep.chip_elements > point.seqlen * d) continue;
    const double elements = point.measured / element_bytes(sweep.last->problem().dtype);
    take_in(range, elements * sweep.chip_elements / (point.seqlen * point.seqlen * d * d));
  }
  return range;
}

/// GPT-2 medium by tiles of `rows` queries, fewest keys first.
std::vector<const RunSummary*> by_block(const std::vector<RunSummary>& runs, int rows) {
  std::vector<const RunSummary*> found;
  for (const RunSummary& run : runs) {
    const AttentionProblem& p = run.problem();
    const bool gpt2_medium = p.batch == 64 && p.heads == 16 && p.seqlen_q == 1024 && p.head_dim == 64;
    if (gpt2_medium && run.run->kernel == "gpu:flash1-mma" && run.tile.block_m == rows &&
        run.median_seconds && run.measured_dram && run.measured_sm_l2) {
      found.push_back(&run);
    }
  }
  std::ranges::sort(found, {}, [](const RunSummary* run) { return run->tile.block_n; });
  return found;
}

/// A kernel's times under windows, each with that of the whole matrix and the share of blocks that it leaves.
struct WindowSweep {
  const RunSummary* whole = nullptr;
  std::vector<std::pair<double, TimedPair>> points;  // share; under the window, whole
};
std::vector<WindowSweep> window_sweeps(const std::vector<RunSummary>& runs) {
  std::vector<WindowSweep> sweeps;
  for (const RunSummary& whole : runs) {
    if (!whole.median_seconds || whole.measured_sm_l2 || whole.problem().masked() ||
        whole.executed_flops == 0)
      continue;
    WindowSweep sweep{&whole, {}};
    bool windowed = false;
    for (const RunSummary& run : runs) {
      AttentionProblem open = run.problem();
      open.window_left = open.window_right = whole.problem().window_left;
      if (open != whole.problem() || run.run->kernel != whole.run->kernel ||
          run.direction != whole.direction || !run.median_seconds || run.measured_sm_l2) {
        continue;
      }
      sweep.points.emplace_back(
          static_cast<double>(run.executed_flops) / static_cast<double>(whole.executed_flops),
          TimedPair{&run, &whole});
      windowed = windowed || run.problem().windowed();
    }
    if (windowed) sweeps.push_back(std::move(sweep));
  }
  return sweeps;
}

}  // namespace

double dram_copy_rate(const Evidence& evidence, const std::string& device) {
  for (const std::vector<CeilingsRecord>* records : {&evidence.ceilings, &evidence.device_ceilings}) {
    for (const CeilingsRecord& record : *records) {
      if (record.measured.device != device) continue;
      for (const MeasuredCeiling& ceiling : record.measured.ceilings) {
        if (ceiling.name == "dram_copy") return ceiling.per_second;
      }
    }
  }
  return 0;
}

bool BlockPoint::by_rule() const {
  return run->tile.block_m <= std::min<std::int64_t>(run->tile.block_n, run->problem().head_dim);
}
bool BlockPoint::within_hypotheses() const {
  const double d = static_cast<double>(run->problem().head_dim);
  return d <= fast && fast <= static_cast<double>(run->problem().seqlen_k) * d;
}
double BlockPoint::constant() const {
  const double n = static_cast<double>(run->problem().seqlen_k),
               d = static_cast<double>(run->problem().head_dim);
  return accesses * fast / (n * n * d * d);
}

std::vector<BlockPoint> block_points(const std::vector<RunSummary>& runs) {
  std::vector<BlockPoint> points;
  for (const RunSummary& run : runs) {
    if (run.algorithm != Algorithm::flash1 || !run.run->kernel.starts_with("gpu:") || !run.measured_sm_l2)
      continue;
    const double width = element_bytes(run.problem().dtype);
    const auto shared = shared_bytes(run);
    if (!shared) continue;
    points.push_back(
        {&run, *shared / width, static_cast<double>(run.measured_sm_l2->total()) / heads_of(run) / width});
  }
  return points;
}

Judgement flash_on_device_forward(const Evidence& evidence) {
  return flash_on_device(evidence, Direction::forward);
}
Judgement flash_on_device_backward(const Evidence& evidence) {
  return flash_on_device(evidence, Direction::backward);
}

Judgement flash_at_dram(const Evidence& evidence) {
  std::size_t pairs = 0, near = 0;
  for (const DramSweep& sweep : dram_sweeps(evidence.runs)) {
    const std::vector<double> measured = sweep.local_exponents(false), model = sweep.local_exponents(true);
    for (std::size_t i = 0; i < model.size(); ++i, ++pairs) near += std::abs(model[i] - measured[i]) <= 0.1;
  }
  std::size_t agree = 0, all = 0;
  std::string text;
  for (const DramSweep& sweep : dram_sweeps(evidence.on_device)) {
    const Range range = dram_constants(sweep);
    if (range.count < 2) continue;
    ++all;
    agree += verdict_of_constant(range) == Verdict::holds;
    std::string simulated;
    for (const double exponent : sweep.local_exponents(true))
      simulated += fmt::format("{}{:.2f}", simulated.empty() ? ", simulated " : ", ", exponent);
    text += fmt::format("; {} on {}, {}: {} at {} lengths, local exponents {}{}", sweep.last->label,
                        short_device(*sweep.last), problem_text(*sweep.last, false), to_string(range),
                        range.count, sweep.local_text(), simulated);
  }
  Judgement judgement = judge_cases(
      agree, all,
      fmt::format(
          "sweeps keep DRAM reads over N² d² / M within the rule in N, with d and M fixed and M <= N d{}. "
          "Of shorter ones {} of {} local exponents of N are within 0.1 of the simulated ones, and turn from "
          "1 to 2 where K and V leave the L2",
          text, near, pairs));
  return judgement;
}

std::string unfused_bytes(const Evidence& evidence) {
  constexpr const char* kDraws = "distribution";  // of PyTorch's kernels: those that draw the inputs
  std::string text;
  for (const KernelRecord& record : evidence.device_commands) {
    double bytes = 0;
    std::size_t kernels = 0;
    for (const KernelMeasurement& kernel : record.kernels) {
      const auto read = kernel.measured.find("dram_read_bytes"),
                 written = kernel.measured.find("dram_write_bytes");
      if (kernel.name.find(kDraws) != std::string::npos || read == kernel.measured.end() ||
          written == kernel.measured.end()) {
        continue;
      }
      bytes += read->second + written->second;
      ++kernels;
    }
    if (kernels == 0) continue;
    text += fmt::format(
        ". PyTorch's products, padding mask, softmax and dropout move {} at DRAM by counters, in {} "
        "kernels",
        format_bytes(bytes), kernels);
  }
  return text;
}

std::string unfused_time(const Evidence& evidence) {
  const std::vector<const RunSummary*> unfused =
      timed_runs(evidence.on_device, "pytorch:math", Direction::forward);
  std::string text;
  for (const RunSummary* flash : timed_runs(evidence.on_device, "gpu:flash1-mma", Direction::forward)) {
    const auto other = std::ranges::find_if(unfused, [flash](const RunSummary* each) {
      return each->record == flash->record && each->problem() == flash->problem();
    });
    if (other == unfused.end()) continue;
    const TimedPair pair{flash, *other};
    text += fmt::format(
        ". Both on tensor cores, forward and without mask and dropout, PyTorch's products and "
        "softmax take {} times gpu:flash1-mma's time on {}",
        rate_ratio(std::span(&pair, 1)).text(), short_device(*flash));
  }
  return text;
}

Judgement figure2_middle_time(const Evidence& evidence) {
  constexpr int kRows = 64;
  constexpr double kBound = 0.5;  // of what a copy reaches, from which on bytes can be said to set a time
  const std::vector<const RunSummary*> blocks = by_block(evidence.on_device, kRows);
  if (blocks.size() < 2) return {};
  const double most = dram_copy_rate(evidence, device_name(*blocks[0]));
  std::size_t falls = 0, bound = 0;
  std::string text;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const double bytes = static_cast<double>(blocks[i]->measured_dram->total()),
                 time = *blocks[i]->median_seconds;
    text += fmt::format("{}{} keys {} and {} at DRAM, {:.0f} % of a copy's rate", i ? "; " : "",
                        blocks[i]->tile.block_n, time_text(*blocks[i]), format_bytes(bytes),
                        most == 0 ? 0 : 100 * bytes / time / most);
    bound += most > 0 && bytes / time >= kBound * most;
    falls += i > 0 && time < *blocks[i - 1]->median_seconds;
  }
  return {
      verdict_of_cases(falls + bound, 2 * blocks.size() - 1),
      fmt::format(
          "time falls at {} of {} steps to a wider block, and at {} of {} blocks bytes pass DRAM at half of "
          "a copy's rate or more, so that they can set it; gpu:flash1-mma on {}, tiles of {} queries: {}",
          falls, blocks.size() - 1, bound, blocks.size(), short_device(*blocks[0]), kRows, text)};
}

Judgement figure2_right_time(const Evidence& evidence) {
  std::size_t agree = 0, all = 0;
  double least = 1, error = 0;
  std::string text;
  for (const WindowSweep& sweep : window_sweeps(evidence.on_device)) {
    Range range;
    for (const auto& [share, pair] : sweep.points) {
      least = std::min(least, share);
      error = std::max({error, median_error(*pair.ours), median_error(*pair.peer)});
      take_in(range, *pair.ours->median_seconds / *pair.peer->median_seconds / share);
    }
    ++all;
    agree += verdict_of_constant(range) == Verdict::holds;
    text += fmt::format("; {} {} {}", sweep.whole->run->kernel, to_string(sweep.whole->direction),
                        to_string(range));
  }
  return judge_cases(
      agree, all,
      fmt::format("kernels and directions keep time over s within a factor of {:g}, s the share of "
                  "blocks that a window leaves, from {:.1f} % up; over that of no window, each known to "
                  "{:.1f} %: {}",
                  kMostOfConstant, 100 * least, 100 * kErrorsOf95 * std::sqrt(2) * error,
                  text.empty() ? "" : text.substr(2)));
}

Judgement block_sparse_gain(const Evidence& evidence) {
  std::string text;
  double most = 0;
  const RunSummary* any = nullptr;
  for (const WindowSweep& sweep : window_sweeps(evidence.on_device)) {
    std::pair<double, TimedPair> ends[2] = {{2, {}}, {-1, {}}};  // fewest blocks, most
    for (const auto& point : sweep.points) {
      if (point.first > 0.5 || point.first < 0.1) continue;  // what gains of 2 to 4 could come of
      if (point.first < ends[0].first) ends[0] = point;
      if (point.first > ends[1].first) ends[1] = point;
    }
    if (ends[1].first < 0) continue;
    any = sweep.whole;
    text += fmt::format("; {} {}", sweep.whole->run->kernel, to_string(sweep.whole->direction));
    for (const auto& [share, pair] : ends) {
      const RateRatio ratio = rate_ratio(std::span(&pair, 1));
      most = std::max(most, ratio.by_medians);
      text += fmt::format(" {} at s = {:.0f} %{}", ratio.text(), 100 * share,
                          &share == &ends[0].first ? "," : "");
    }
  }
  if (any == nullptr) return {};
  return judge_number({"an A100", "butterfly blocks of FlashAttention", ""},
                      {short_device(*any), "windows of FlashAttention-2 and -3", ""}, 3, most, 0.33,
                      "Rates at N4096 D64 over those without a window" + text);
}

const MeasuredCeiling* find_ceiling(const CeilingsRecord& record, std::string_view name) {
  const auto found = std::ranges::find(record.measured.ceilings, name, &MeasuredCeiling::name);
  return found == record.measured.ceilings.end() ? nullptr : &*found;
}

std::string ceiling_text(const MeasuredCeiling& ceiling) {
  return fmt::format("{:.2f} TB/s +- {:.1f} %", 1e-12 * ceiling.per_second, 100 * ceiling.noise);
}

}  // namespace tilescope
