// SPDX-License-Identifier: Apache-2.0
// FlashAttention-3's table of errors: printed numbers beside the draws of kernels on CPU and GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/report/claims/device_claims.hpp"
#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/checks/paper_errors.hpp"
#include "analysis/studies/error_study.hpp"

namespace tilescope {
namespace {

/// A method that ran on a device, and the CPU kernel that computes as it does, with scales and transform
/// alike.
struct DeviceMethod {
  MethodErrors device;
  const MethodErrors* cpu = nullptr;    // of the same element type; null: no record
  const PaperError* printed = nullptr;  // of that kernel
};

/// "cpu:flash2, block scales" of "gpu:flash3, block scales, two-level sums". The CPU's fp32 sums stand for
/// all.
std::string cpu_method(std::string method) {
  const std::size_t kernel_end = std::min(method.find(','), method.size());
  const bool standard = method.substr(0, kernel_end).find("standard") != std::string::npos;
  std::string scales = method.substr(kernel_end);
  if (scales.ends_with(" sums")) scales.resize(scales.rfind(','));
  return (standard ? "cpu:standard" : "cpu:flash2") + scales;
}

std::vector<DeviceMethod> device_methods(const Evidence& evidence, const std::vector<MethodErrors>& cpu) {
  std::vector<DeviceMethod> methods;
  for (MethodErrors& errors : method_errors(evidence.device_records)) {
    if (!errors.method.starts_with("gpu:") && !errors.method.starts_with("pytorch:")) continue;
    const std::string alike = cpu_method(errors.method);
    const ElementType type = errors.dtype;
    methods.push_back({std::move(errors), find_method(cpu, type, alike), printed_error(type, alike)});
  }
  std::ranges::stable_sort(methods, {}, [](const DeviceMethod& one) { return one.device.dtype; });
  return methods;
}

std::string range_text(const MethodErrors& errors, const char* format) {
  const auto [low, high] = std::ranges::minmax(errors.rmse);
  return fmt::format("{} ... {}", fmt::format(fmt::runtime(format), low),
                     fmt::format(fmt::runtime(format), high));
}

/// The fewest draws of any method.
std::size_t fewest_draws(const std::vector<DeviceMethod>& methods) {
  std::size_t fewest = methods.front().device.rmse.size();
  for (const DeviceMethod& one : methods) fewest = std::min(fewest, one.device.rmse.size());
  return fewest;
}

/// How many printed errors lie within the draws of their method, on a CPU and of gpu:flash3 on a device.
Judgement errors_of(const Evidence& evidence, ElementType type) {
  const std::vector<MethodErrors> errors = method_errors(evidence.records);
  std::size_t agree = 0, all = 0, reversed = 0;
  std::string text;
  std::vector<std::pair<double, double>> seen;  // printed, ours
  for (const PaperError& paper : kPaperErrors) {
    const MethodErrors* ours = find_method(errors, type, paper.kernel);
    if (paper.dtype != to_string(type) || ours == nullptr) continue;
    ++all;
    agree += ours->covers(paper.rmse);
    for (const auto& [printed, mean] : seen) reversed += (printed < paper.rmse) != (mean < ours->mean());
    seen.emplace_back(paper.rmse, ours->mean());
    text += fmt::format("{}{:.2e} ({}) for {:.1e} ({})", text.empty() ? "" : ", ", ours->mean(),
                        range_text(*ours, "{:.2e}"), paper.rmse, paper.method);
  }
  for (const DeviceMethod& one : device_methods(evidence, errors)) {
    if (one.device.dtype != type || one.printed == nullptr || !one.device.method.starts_with("gpu:flash3"))
      continue;
    ++all;
    agree += one.device.covers(one.printed->rmse);
    text += fmt::format("; {} on {} {:.2e} ({}) for {:.1e}", one.device.method, one.device.device,
                        one.device.mean(), range_text(one.device, "{:.2e}"), one.printed->rmse);
  }
  return judge_cases(
      agree, all,
      fmt::format(
          "printed errors lie between the least and the largest draw, in brackets: on CPU kernels {}{}", text,
          reversed == 0 ? "" : fmt::format("; {} of the pairs are in another order than printed", reversed)));
}

/// How many times less a flash kernel errs than the baseline, draw by draw.
std::string ratio_text(const MethodErrors& ratios) {
  return fmt::format("{:.2f} ({}) times less over {} draws", ratios.mean(), range_text(ratios, "{:.2f}"),
                     ratios.rmse.size());
}

}  // namespace

Judgement errors_fp16(const Evidence& evidence) { return errors_of(evidence, ElementType::fp16); }
Judgement errors_fp8(const Evidence& evidence) { return errors_of(evidence, ElementType::fp8e4m3); }

Judgement errors_fp8_ratio(const Evidence& evidence) {
  constexpr double kPrinted = 2.6;
  const std::vector<MethodErrors> errors = method_errors(evidence.records);
  const std::string flash = "cpu:flash2, block scales, incoherent";
  const MethodErrors* baseline =
      find_method(errors, ElementType::fp8e4m3, std::string(kTwiceRounded) + ", a scale a tensor");
  const MethodErrors* on_cpu = find_method(errors, ElementType::fp8e4m3, flash);
  if (baseline == nullptr || on_cpu == nullptr) return {};
  const MethodErrors ratios = error_ratios(*baseline, *on_cpu);
  std::size_t agree = ratios.covers(kPrinted), all = 1;
  std::string text = "cpu:flash2 " + ratio_text(ratios);
  for (const DeviceMethod& one : device_methods(evidence, errors)) {
    if (one.cpu != on_cpu) continue;
    const MethodErrors on_device = error_ratios(*baseline, one.device);
    if (on_device.rmse.empty()) continue;
    ++all;
    agree += on_device.covers(kPrinted);
    text += fmt::format("; {} on {} {}", one.device.method, one.device.device, ratio_text(on_device));
  }
  return judge_cases(agree, all, "kernels have 2.6 times between their least and largest draw: " + text);
}

std::optional<Section> errors_on_devices(const Evidence& evidence) {
  const std::vector<MethodErrors> cpu = method_errors(evidence.records);
  const std::vector<DeviceMethod> methods = device_methods(evidence, cpu);
  if (methods.empty()) return std::nullopt;
  const std::size_t draws = fewest_draws(methods);
  Table table{
      fmt::format("RMSE of O against fp64 attention of the inputs before they were rounded, {} draws: "
                  "mean, least and largest, between which the median draw lies with {:.1f} %. Beside it "
                  "the CPU kernel that computes alike, and the error over that kernel's, draw by draw "
                  "on the same inputs.",
                  draws, 100 * (1 - std::exp2(1 - static_cast<double>(draws)))),
      {{"element type"},
       {"method"},
       {"device"},
       {"paper", true},
       {"RMSE", true},
       {"least ... largest"},
       {"beside"},
       {"error over its"}},
      {}};
  for (const DeviceMethod& one : methods) {
    const MethodErrors ratios = one.cpu ? error_ratios(one.device, *one.cpu) : MethodErrors{};
    table.rows.push_back({std::string(to_string(one.device.dtype)), one.device.method, one.device.device,
                          one.printed ? fmt::format("{:.1e}", one.printed->rmse) : "-",
                          fmt::format("{:.2e}", one.device.mean()), range_text(one.device, "{:.2e}"),
                          ratios.rmse.empty() ? "-" : one.cpu->method,
                          ratios.rmse.empty()
                              ? "-"
                              : fmt::format("{:.3f} ({})", ratios.mean(), range_text(ratios, "{:.3f}"))});
  }
  return Section{"errors-on-devices", "FlashAttention-3's error experiment on devices", {std::move(table)}};
}

}  // namespace tilescope
