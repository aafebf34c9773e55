// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "analysis/report/sections/verdicts.hpp"
#include "analysis/report/sweep.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// The run of an algorithm that moves least at DRAM, or null.
const RunSummary* least(const std::vector<const RunSummary*>& runs, Algorithm algorithm,
                        Direction direction = Direction::forward) {
  const RunSummary* found = nullptr;
  for (const RunSummary* run : runs) {
    if (run->algorithm != algorithm || run->direction != direction || !dram_ratio(*run) ||
        !sm_l2_ratio(*run)) {
      continue;
    }
    if (found == nullptr || *dram_ratio(*run) < *dram_ratio(*found)) found = run;
  }
  return found;
}

/// standard and flash2, forward, and flash2's backward pass, which may be null.
struct Compared {
  const RunSummary *standard = nullptr, *flash = nullptr, *backward = nullptr;
};

/// The most telling problem on which both were measured, or else simulated, in one record.
Compared standard_and_flash(const std::vector<RunSummary>& runs) {
  std::vector<std::vector<const RunSummary*>> problems;  // of one record each
  for (const auto& problem : group_by_problem(headline_runs(runs))) {
    std::ranges::move(group_by_record(problem), std::back_inserter(problems));
  }
  std::erase_if(problems, [](const auto& members) {
    return !least(members, Algorithm::standard) || !least(members, Algorithm::flash2);
  });
  if (problems.empty()) return {};
  const auto measured = [](const auto& members) { return members.front()->measured_dram.has_value(); };
  if (std::any_of(problems.begin(), problems.end(), measured)) std::erase_if(problems, std::not_fn(measured));
  const auto members = most_telling(problems, 1).front();
  return {least(members, Algorithm::standard), least(members, Algorithm::flash2),
          least(members, Algorithm::flash2, Direction::backward)};
}

/// The forward pass of flash2 kernels that moves most at DRAM against what it must, counted as `flash` is.
const RunSummary& most(const std::vector<RunSummary>& runs, const RunSummary& flash) {
  const RunSummary* found = &flash;
  for (const RunSummary& run : runs) {
    if (run.algorithm != Algorithm::flash2 || run.direction != Direction::forward || !dram_ratio(run) ||
        run.measured_dram.has_value() != flash.measured_dram.has_value()) {
      continue;
    }
    if (*dram_ratio(run) > *dram_ratio(*found)) found = &run;
  }
  return *found;
}

}  // namespace

std::optional<Finding> bytes_verdict(const std::vector<RunSummary>& runs) {
  const auto [standard, flash, backward] = standard_and_flash(runs);
  if (!flash) return std::nullopt;
  const double dram = *dram_ratio(*flash);
  const RunSummary& worst = most(runs, *flash);
  const std::string low = format_ratio(dram), high = format_ratio(*dram_ratio(worst));
  constexpr double kNearly = 1.1;
  const bool backward_more = backward && *dram_ratio(*backward) > kNearly;
  const bool nearly = dram <= kNearly, grows = *dram_ratio(worst) > kNearly;
  return Finding{
      "Do they move more than they must?", low == high ? low : low + " ... " + high,
      fmt::format(
          "**{}{}** At DRAM `{}`'s forward pass moves {} the {} that it must ({} at SM<->L2){}; `{}`'s {} "
          "({} at SM<->L2). {}, {}, {}.{}",
          !nearly         ? "More."
          : backward_more ? "Forward hardly more"
                          : "Hardly more",
          !nearly ? ""
          : grows ? ", as long as the L2 holds what is streamed."
                  : ".",
          flash->run->kernel, low, format_bytes(static_cast<double>(flash->compulsory.total())),
          format_ratio(*sm_l2_ratio(*flash)),
          backward ? ", its backward pass " + format_ratio(*dram_ratio(*backward)) : "",
          standard->run->kernel, format_ratio(*dram_ratio(*standard)), format_ratio(*sm_l2_ratio(*standard)),
          problem_text(*flash), machine_text(*flash), flash->measured_dram ? "measured" : "simulated",
          low == high
              ? ""
              : fmt::format(" Forward at most {}: `{}`, {}.", high, worst.label, problem_text(worst))),
      nearly ? Outcome::good : Outcome::mixed, "summary"};
}

}  // namespace tilescope
