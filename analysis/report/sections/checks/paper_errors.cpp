// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's error table beside ours.
#include "analysis/report/sections/checks/paper_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/model/validation/paper_values.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/studies/error_study.hpp"

namespace tilescope {
namespace {

/// "cpu:flash2, block scales, incoherent, two-level sums"
std::string method_of(const RunEntry& run) {
  std::string kernel = run.kernel, text;
  const bool incoherent = kernel.ends_with(kIncoherent);
  if (incoherent) kernel.resize(kernel.size() - kIncoherent.size());
  text = kernel;
  if (is_fp8(run.problem.dtype))
    text += run.problem.descales.by_block() ? ", block scales" : ", a scale a tensor";
  if (incoherent) text += ", incoherent";
  const bool named = is_fp8(run.problem.dtype) && !run.passes.empty() && run.passes.front().choices.fp8_sums;
  return text + (named ? ", " + *run.passes.front().choices.fp8_sums + " sums" : "");
}

std::string scientific_error(double value) { return fmt::format("{:.2e}", value); }

Table method_table(const std::vector<MethodErrors>& errors) {
  Table table{
      "RMSE of O against fp64 attention of the inputs before they were rounded: mean and standard "
      "deviation over the draws, least and largest.",
      {{"element type"},
       {"method"},
       {"paper", true},
       {"ours", true},
       {"from draw to draw", true},
       {"least ... largest", true}},
      {}};
  for (const MethodErrors& ours : errors) {
    const PaperError* paper = printed_error(ours.dtype, ours.method);
    const auto [low, high] = std::ranges::minmax(ours.rmse);
    table.rows.push_back({std::string(to_string(ours.dtype)),
                          paper ? fmt::format("{} (paper: {})", ours.method, paper->method) : ours.method,
                          paper ? fmt::format("{:.1e}", paper->rmse) : "-", scientific_error(ours.mean()),
                          scientific_error(ours.deviation()),
                          fmt::format("{} ... {}", scientific_error(low), scientific_error(high))});
  }
  return table;
}

/// "1.65 +- 0.08 (1.55 ... 1.75), in the paper 1.68"
std::optional<std::string> ratio_text(const std::vector<MethodErrors>& errors, ElementType type,
                                      const char* of, const char* over) {
  const MethodErrors *a = find_method(errors, type, of), *b = find_method(errors, type, over);
  if (!a || !b) return std::nullopt;
  const MethodErrors ratios = error_ratios(*a, *b);
  const PaperError *paper_a = printed_error(a->dtype, a->method),
                   *paper_b = printed_error(b->dtype, b->method);
  const auto [low, high] = std::ranges::minmax(ratios.rmse);
  return fmt::format("{}: {} has {:.2f} +- {:.2f} times ({:.2f} ... {:.2f}) the error of {}{}",
                     to_string(type), of, ratios.mean(), ratios.deviation(), low, high, over,
                     paper_a && paper_b
                         ? fmt::format(", in the paper {:.2f} times", paper_a->rmse / paper_b->rmse)
                         : std::string());
}

}  // namespace

double MethodErrors::mean() const {
  return std::accumulate(rmse.begin(), rmse.end(), 0.0) / static_cast<double>(rmse.size());
}

double MethodErrors::deviation() const {
  if (rmse.size() < 2) return 0;
  double sum = 0;
  for (const double value : rmse) sum += (value - mean()) * (value - mean());
  return std::sqrt(sum / static_cast<double>(rmse.size() - 1));
}

bool MethodErrors::covers(double printed) const {
  const auto [low, high] = std::ranges::minmax(rmse);
  const double half_digit = 0.5 * std::pow(10, std::floor(std::log10(printed)) - 1);
  return low - half_digit <= printed && printed <= high + half_digit;
}

std::vector<MethodErrors> method_errors(const std::vector<RunRecord>& records) {
  std::vector<MethodErrors> errors;
  for (const RunRecord& record : records) {
    const std::string device = record.machine.name.value_or("");
    for (const RunEntry& run : record.runs) {
      const auto found = run.error.find(std::string(kErrorWithInputRounding));
      if (found == run.error.end()) continue;
      const std::string method = method_of(run);
      auto place = std::ranges::find_if(errors, [&](const MethodErrors& one) {
        return one.dtype == run.problem.dtype && one.method == method && one.device == device;
      });
      if (place == errors.end()) place = errors.insert(place, {run.problem.dtype, method, {}, {}, device});
      place->rmse.push_back(found->second.rmse);
      place->seeds.push_back(run.problem.seed);
    }
  }
  return errors;
}

const MethodErrors* find_method(const std::vector<MethodErrors>& errors, ElementType dtype,
                                std::string_view method) {
  const auto found = std::ranges::find_if(
      errors, [&](const MethodErrors& one) { return one.dtype == dtype && one.method == method; });
  return found == errors.end() ? nullptr : &*found;
}

const PaperError* printed_error(ElementType dtype, std::string_view method) {
  for (const PaperError& paper : kPaperErrors) {
    if (to_string(dtype) == paper.dtype && method == paper.kernel) return &paper;
  }
  return nullptr;
}

MethodErrors error_ratios(const MethodErrors& of, const MethodErrors& over) {
  MethodErrors ratios{of.dtype, of.method + " over " + over.method, {}};
  for (std::size_t i = 0; i < of.rmse.size(); ++i) {
    const auto same = std::ranges::find(over.seeds, of.seeds[i]);
    if (same == over.seeds.end()) continue;
    ratios.seeds.push_back(of.seeds[i]);
    ratios.rmse.push_back(of.rmse[i] / over.rmse[static_cast<std::size_t>(same - over.seeds.begin())]);
  }
  return ratios;
}

std::optional<Section> paper_error_section(const std::vector<RunRecord>& records) {
  const std::vector<MethodErrors> errors = method_errors(records);
  if (errors.empty()) return std::nullopt;
  std::vector<std::string> commands;
  AttentionProblem shape;
  for (const RunRecord& record : records) {
    for (const RunEntry& run : record.runs) {
      if (!run.error.contains(std::string(kErrorWithInputRounding))) continue;
      add_new(commands, command_text(record.argv));
      shape = run.problem;
    }
  }
  Section section{"paper-errors", "FlashAttention-3's error experiment, repeated", {}};
  section.blocks.push_back(Paragraph{fmt::format(
      "Entries of Q, K and V are N(0,1) + N(0,100) * Bernoulli(0.001) (arXiv:2407.08608, section 4.3); {} "
      "draws "
      "of B{} H{} N{} D{}, forward. The paper prints no shape; this is the one of its Table 2. The baseline "
      "rounds as a framework does, step by step: Q K^T to fp16, scaled and again to fp16, P to fp16. A scale "
      "a "
      "tensor, or one for each tile of the kernel, makes the largest magnitude the type's own. Incoherent: Q "
      "and "
      "K went through a Hadamard matrix with random signs before they were rounded.",
      errors.front().rmse.size(), shape.batch, shape.heads, shape.seqlen_q, shape.head_dim)});
  section.blocks.push_back(method_table(errors));
  Bullets findings;
  const std::string baseline(kTwiceRounded), baseline8 = baseline + ", a scale a tensor";
  for (const auto& text : {ratio_text(errors, ElementType::fp16, baseline.c_str(), "cpu:flash2"),
                           ratio_text(errors, ElementType::fp16, "cpu:standard", "cpu:flash2"),
                           ratio_text(errors, ElementType::fp8e4m3, baseline8.c_str(),
                                      "cpu:flash2, block scales, incoherent")}) {
    if (text) findings.items.push_back(*text + ".");
  }
  if (!findings.items.empty()) section.blocks.push_back(std::move(findings));
  section.blocks.push_back(CommandLines{reproduction(commands)});
  return section;
}

}  // namespace tilescope
