// SPDX-License-Identifier: Apache-2.0
// What `verify` found: errors, a row a kernel and element type, and results that differ from run to run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "analysis/report/document/report_document.hpp"
#include "analysis/report/sections/report_sections.hpp"
#include "analysis/report/sweep.hpp"

namespace tilescope {
namespace {

constexpr std::array<const char*, 5> kJudgedTensors = {"o", "lse", "dq", "dk", "dv"};

/// The verdicts on one kernel in one element type.
struct Judged {
  std::int64_t cases = 0;
  std::int64_t failed = 0;
  std::map<std::string, double> worst_share;  // max_abs / bound by tensor
  std::map<std::string, double> worst_rmse;
  double worst_share_of_mirror = 0, worst_rmse_share_of_mirror = 0;  // over all tensors
  bool has_mirror = false;
};

bool passed(const TensorErrorRecord& error) { return error.non_finite == 0 && error.max_abs <= error.bound; }

double share(double error, double bound) { return error == 0 ? 0.0 : error / bound; }

void add_verdict(Judged& judged, const RunEntry& run) {
  judged.cases += run.cases.value_or(1);
  bool all = true;
  for (const auto& [tensor, error] : run.error) {
    all = all && passed(error);
    judged.worst_share[tensor] = std::max(judged.worst_share[tensor], share(error.max_abs, error.bound));
    judged.worst_rmse[tensor] = std::max(judged.worst_rmse[tensor], error.rmse);
  }
  for (const auto& [tensor, error] : run.mirror_error) {
    const double rmse_share = error.rmse_bound ? share(error.rmse, *error.rmse_bound) : 0.0;
    all = all && passed(error) && rmse_share <= 1.0;
    judged.has_mirror = true;
    const double of_max = error.share.value_or(share(error.max_abs, error.bound));
    all = all && of_max <= 1.0;
    judged.worst_share_of_mirror = std::max(judged.worst_share_of_mirror, of_max);
    judged.worst_rmse_share_of_mirror = std::max(judged.worst_rmse_share_of_mirror, rmse_share);
  }
  judged.failed += run.failed.value_or(all ? 0 : 1);
}

/// Whether the record says what the error was held to.
bool was_judged(const RunEntry& run) {
  return !run.error.empty() &&
         std::ranges::all_of(run.error, [](const auto& entry) { return entry.second.bound > 0; });
}

/// By the algorithm's place in the papers' order, kernel and element type.
using JudgedKernels = std::map<std::tuple<int, std::string, ElementType>, Judged>;

struct AllJudged {
  JudgedKernels by_kernel;
  std::vector<std::string> commands, machines;
};

AllJudged judge_all(const std::vector<RunRecord>& records) {
  AllJudged all;
  for (const RunRecord& record : records) {
    bool used = false;
    for (const RunEntry& run : record.runs) {
      if (!was_judged(run)) continue;
      const int algorithm = run.algorithm ? static_cast<int>(*run.algorithm) : 3;
      add_verdict(all.by_kernel[{algorithm, run.kernel, run.problem.dtype}], run);
      const bool on_device = run.runs_on == "gpu";
      add_new(all.machines,
              (on_device ? record.machine.name : record.machine.cpu).value_or("an unknown machine"));
      used = true;
    }
    if (used) all.commands.push_back(command_text(record.argv));
  }
  return all;
}

/// One row a kernel, those with failures first.
Table kernel_verdicts(const JudgedKernels& by_kernel) {
  struct Verdicts {
    std::string kernel, types;
    std::int64_t cases = 0, failed = 0;
    double worst = 0;
  };
  std::vector<Verdicts> kernels;
  for (const auto& [key, judged] : by_kernel) {
    const std::string& kernel = std::get<1>(key);
    if (kernels.empty() || kernels.back().kernel != kernel) kernels.push_back({kernel, "", 0, 0, 0});
    Verdicts& row = kernels.back();
    row.types += (row.types.empty() ? "" : ", ") + std::string(to_string(std::get<2>(key)));
    row.cases += judged.cases;
    row.failed += judged.failed;
    for (const auto& [tensor, share] : judged.worst_share) row.worst = std::max(row.worst, share);
  }
  std::ranges::stable_sort(kernels, std::ranges::greater{}, &Verdicts::failed);
  Table table{"", {{"kernel"}, {"verdict"}, {"largest error / bound", true}, {"element types"}}, {}};
  for (const Verdicts& row : kernels) {
    const std::string verdict = fmt::format("right in {} of {} cases", row.cases - row.failed, row.cases);
    table.rows.push_back({row.kernel, row.failed > 0 ? "**" + verdict + "**" : verdict,
                          fmt::format("{:.2f}", row.worst), row.types});
  }
  return table;
}

}  // namespace

JudgedCases judged_cases(const std::vector<RunRecord>& records) {
  JudgedCases all;
  std::set<std::string> kernels;
  for (const auto& [key, judged] : judge_all(records).by_kernel) {
    all.cases += judged.cases;
    all.failed += judged.failed;
    kernels.insert(std::get<1>(key));
  }
  all.kernels = kernels.size();
  return all;
}

std::optional<Finding> error_verdict(const std::vector<RunRecord>& records) {
  const AllJudged all = judge_all(records);
  const auto [cases, failed, kernels] = judged_cases(records);
  if (cases == 0) return std::nullopt;
  return Finding{
      "Are the kernels right?",
      {{{{failed == 0 ? fmt::format("all {}", cases) : fmt::format("{} of {}", cases - failed, cases)}}}},
      fmt::format("**{}** cases of {} kernels lie within their bound around exact attention in fp64 ({}).",
                  failed == 0 ? "Yes. All" : fmt::format("No. {} of {}", cases - failed, cases), kernels,
                  fmt::join(all.machines, ", ")),
      failed == 0 ? Outcome::good : Outcome::bad,
      "errors"};
}

std::optional<Section> error_section(const std::vector<RunRecord>& records) {
  const auto [by_kernel, commands, machines] = judge_all(records);
  if (by_kernel.empty()) return std::nullopt;
  Table table{"Largest error in any case over what it was held to (1.00 = just passed), by tensor.",
              {{"kernel"}, {"element type"}, {"cases", true}},
              {}};
  const bool any_failed =
      std::ranges::any_of(by_kernel, [](const auto& entry) { return entry.second.failed > 0; });
  if (any_failed) table.columns.push_back({"failed", true});
  for (const char* tensor : kJudgedTensors) table.columns.push_back({tensor, true});
  table.columns.push_back({"largest RMSE of o", true});
  const bool any_mirror =
      std::ranges::any_of(by_kernel, [](const auto& entry) { return entry.second.has_mirror; });
  if (any_mirror) {
    table.columns.push_back({"against mirror", true});
    table.columns.push_back({"its RMSE", true});
  }
  for (const auto& [key, judged] : by_kernel) {
    const auto& [rank, kernel, dtype] = key;
    std::vector<std::string> row = {kernel, std::string(to_string(dtype)), std::to_string(judged.cases)};
    if (any_failed) row.push_back(judged.failed == 0 ? "0" : fmt::format("**{}**", judged.failed));
    for (const char* tensor : kJudgedTensors) {
      const auto share = judged.worst_share.find(tensor);
      row.push_back(share == judged.worst_share.end() ? "-" : fmt::format("{:.2f}", share->second));
    }
    const auto rmse = judged.worst_rmse.find("o");
    row.push_back(rmse == judged.worst_rmse.end() ? "-" : fmt::format("{:.1e}", rmse->second));
    if (any_mirror) {
      row.push_back(judged.has_mirror ? fmt::format("{:.2f}", judged.worst_share_of_mirror) : "-");
      row.push_back(judged.has_mirror ? fmt::format("{:.2f}", judged.worst_rmse_share_of_mirror) : "-");
    }
    table.rows.push_back(std::move(row));
  }
  Section section{"errors", with_machines("Are the kernels right?", machines), {}};
  section.blocks.push_back(
      Paragraph{"Every kernel against exact attention in fp64. A tensor passes when its largest error is at "
                "most 2 times (gradients: 3 times) that of standard attention in the same element type, "
                "plus a measured absolute part; a value that is not finite where it should be fails at "
                "once."});
  if (any_mirror) {
    section.blocks.push_back(Paragraph{
        "A GPU kernel is also held to its CPU mirror, which has the same tiles, order and roundings: "
        "to a largest difference, and to a root mean square that leaves room for the order of sums "
        "inside a tile and little else. The last two columns are the largest shares of these bounds, "
        "over all tensors."});
  }
  section.blocks.push_back(kernel_verdicts(by_kernel));
  section.blocks.push_back(std::move(table));
  section.blocks.push_back(CommandLines{commands});
  return section;
}

std::optional<Section> repeat_section(const std::vector<RunRecord>& records) {
  struct Repeated {
    std::int64_t problems = 0, runs = 0, runs_that_differ = 0;
    double worst_share = 0;  // of the spread, over the bound of the error
    bool may_differ = false;
  };
  std::map<std::tuple<std::string, std::string, std::string>, Repeated> by_tensor;
  std::vector<std::string> commands, machines;
  for (const RunRecord& record : records) {
    bool used = false;
    for (const RunEntry& run : record.runs) {
      std::string passes;  // of the backward direction: they tell its order
      for (const PassRecord& pass : run.passes) {
        if (pass.direction == Direction::backward) passes += (passes.empty() ? "" : ", ") + pass.name;
      }
      for (const auto& [tensor, repeat] : run.repeats) {
        Repeated& repeated = by_tensor[{run.kernel, passes, tensor}];
        ++repeated.problems;
        repeated.runs += repeat.runs;
        repeated.runs_that_differ += repeat.runs_that_differ;
        repeated.worst_share = std::max(repeated.worst_share, share(repeat.spread, repeat.bound));
        repeated.may_differ = repeated.may_differ || repeat.may_differ;
        used = true;
      }
    }
    if (!used) continue;
    commands.push_back(command_text(record.argv));
    add_new(machines, record.machine.name.value_or(record.machine.cpu.value_or("an unknown machine")));
  }
  if (by_tensor.empty()) return std::nullopt;
  Table table{"",
              {{"kernel"},
               {"backward passes"},
               {"tensor"},
               {"problems", true},
               {"runs", true},
               {"that differ", true},
               {"largest difference / bound", true},
               {"order of sums"}},
              {}};
  for (const auto& [key, repeated] : by_tensor) {
    const auto& [kernel, passes, tensor] = key;
    const bool wrong = repeated.runs_that_differ > 0 && !repeated.may_differ;
    const std::string differ = std::to_string(repeated.runs_that_differ);
    table.rows.push_back({kernel, passes, tensor, std::to_string(repeated.problems),
                          std::to_string(repeated.runs), wrong ? "**" + differ + "**" : differ,
                          repeated.runs_that_differ == 0 ? "-" : fmt::format("{:.3f}", repeated.worst_share),
                          repeated.may_differ ? "free (atomic adds)" : "fixed"});
  }
  return Section{
      "repeats",
      with_machines("Are the results the same every time?", machines),
      {Paragraph{
           "Each problem was run again and again on fresh memory and compared bit by bit with the first "
           "run. Where atomic adds sum in any order, the spread stands beside the bound that the error "
           "against the exact result is held to."},
       std::move(table), CommandLines{std::move(commands)}}};
}

}  // namespace tilescope
