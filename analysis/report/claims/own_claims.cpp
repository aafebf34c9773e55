// SPDX-License-Identifier: Apache-2.0
// Lower bounds, and what TileScope itself says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/lower_bounds.hpp"
#include "analysis/model/validation/measured_pass.hpp"
#include "analysis/report/claims/judging.hpp"
#include "analysis/report/sections/model/agreement.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Reads that counters saw, over the bound for the SMs' memory: of runs with counters of every pass.
Judgement reads_above_bound(const Evidence& evidence) {
  std::size_t above = 0, all = 0, vacuous = 0;
  double nearest = HUGE_VAL;
  const RunSummary* closest = nullptr;
  for (const RunSummary& run : evidence.runs) {
    if (!run.measured_sm_l2 || !run.algorithm) continue;
    const auto machine = machine_of_device(device_name(run));
    if (!machine) continue;
    const ReadBound bound = read_bound(run.problem(), run.direction, *run.algorithm, sm_memory(*machine));
    ++all;
    const double ratio =
        static_cast<double>(run.measured_sm_l2->read_bytes) / static_cast<double>(bound.bytes());
    above += ratio >= 1;
    vacuous += bound.score_bound_vacuous();
    if (!bound.score_bound_vacuous() && ratio < nearest) {
      nearest = ratio;
      closest = &run;
    }
  }
  Judgement judgement = judge_cases(
      above, all,
      fmt::format("directions read as much or more; for {} of them it says no more than that inputs are read",
                  vacuous));
  if (closest) {
    judgement.sentence +=
        fmt::format("; of the others none is nearer than {}: {} {}, {}", format_ratio(nearest),
                    closest->label, to_string(closest->direction), problem_text(*closest));
  }
  return judgement;
}

/// Points with M < d^2 at which standard attention makes fewer accesses than FlashAttention.
Judgement small_memory(const Evidence& evidence) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  std::size_t all = 0, fewer = 0;
  for (const TheoremPoint& flash : points) {
    if (flash.run->algorithm != Algorithm::flash1 || flash.run->direction != Direction::forward ||
        flash.fast >= flash.head_dim * flash.head_dim) {
      continue;
    }
    for (const TheoremPoint& standard : points) {
      if (standard.run->algorithm != Algorithm::standard || standard.run->direction != Direction::forward ||
          standard.run->problem() != flash.run->problem() || standard.fast != flash.fast) {
        continue;
      }
      ++all;
      fewer += standard.accesses < flash.accesses;
    }
  }
  return judge_cases(fewer, all, "points with M < d² have standard attention make fewer accesses forward");
}

/// FlashAttention's accesses over the bound on reads of one processor, where it is no less than the inputs.
Judgement large_memory(const Evidence& evidence) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  const Range over_bound = range_of_points(
      points, Algorithm::flash1, Direction::forward,
      [](const TheoremPoint& point) {
        return point.within_hypotheses() && point.fast >= 2 * point.head_dim * point.head_dim;
      },
      [](const TheoremPoint& point) {
        return point.accesses / score_read_bound(point.seqlen * point.seqlen, point.head_dim, point.fast, 0);
      });
  return {verdict_of_constant(over_bound),
          fmt::format("{} times the bound without its term - p M, at {} points with M >= 2 d²",
                      to_string(over_bound), over_bound.count)};
}

/// FlashAttention-2's forward pass where the rule's block of queries is as large as it gets.
Judgement capped_queries(const Evidence& evidence) {
  const std::vector<TheoremPoint> points = theorem_points(evidence.constants);
  const auto capped = [](const TheoremPoint& point) {
    return point.within_hypotheses() && point.fast >= 4 * point.head_dim * point.head_dim;
  };
  const Range c = range_of_points(points, Algorithm::flash2, Direction::forward, capped,
                                  [](const TheoremPoint& point) { return point.of_flash(); });
  const Range without_m =
      range_of_points(points, Algorithm::flash2, Direction::forward, capped, [](const TheoremPoint& point) {
        return point.of_flash() / (point.fast / (point.head_dim * point.head_dim));
      });
  const bool flat =
      verdict_of_constant(without_m) == Verdict::holds && verdict_of_constant(c) == Verdict::fails;
  return {c.count == 0 ? Verdict::not_tested
          : flat       ? Verdict::holds
                       : Verdict::fails,
          fmt::format("from M = 4 d² on c is {}, and accesses are {} N² whatever M is", to_string(c),
                      to_string(without_m))};
}

Judgement to_the_byte(const Evidence& evidence) {
  const std::vector<Deviation> deviations = account_deviations(evidence.runs);
  const AgreementCount count = count_agreeing(deviations);
  return judge_cases(
      count.agree, count.all,
      fmt::format("sides of passes leave at most {:g} % of reads and {:g} % of writes beside the "
                  "formula and causes that counters name",
                  100 * kExactReads, 100 * kExactWrites));
}

Judgement dram_fitted(const Evidence& evidence) {
  const DramAgreement found = dram_agreement(evidence.runs, evidence.noise_floor);
  std::string exceptions;
  for (const auto& [kernel, count] : found.exceptions)
    exceptions += fmt::format("{}{} of {}", exceptions.empty() ? "" : ", ", count, kernel);
  return judge_cases(
      found.within, found.all,
      fmt::format("passes that read something again are within 5 % where they fit the L2 and 15 % "
                  "where not, {} of them by their medians and the others by one of their launches. "
                  "Exceptions: {}",
                  found.by_median, exceptions.empty() ? "none" : exceptions));
}

Judgement dram_not_fitted(const Evidence& evidence) {
  constexpr double kTolerance = 0.15;
  std::vector<double> errors;
  for (const MeasuredPass& pass : measured_passes(evidence.holdout)) {
    if (pass.has_dram() && pass.leaves_floor()) errors.push_back(std::abs(pass.dram_error()));
  }
  const auto within = std::ranges::count_if(errors, [](double error) { return error <= kTolerance; });
  const double worst = errors.empty() ? 0 : std::ranges::max(errors);
  return judge_cases(
      static_cast<std::size_t>(within), errors.size(),
      fmt::format("passes are within {:.0f} %, the worst off by {:.1f} %", 100 * kTolerance, 100 * worst));
}

Judgement orders(const Evidence& evidence) {
  const PredictedChanges found = predicted_changes(evidence.runs);
  return judge_cases(
      found.right, found.changed,
      fmt::format("changes of DRAM reads by more than {:.0f} % went the way that was predicted, of {} "
                  "pairs of orders",
                  100 * kChange, found.pairs));
}

constexpr Claim kBounds[] = {
    {"Saha and Ye (arXiv:2402.07443), Theorem 3.1",
     "FlashAttention's order is optimal for M >= d², but for a factor", "SM<->L2",
     "standard products, d² <= M <= N d", "formula over the explicit bound for one processor", large_memory,
     "[constants](report.md#constants)"},
    {"Saha and Ye, Theorem 3.1", "and it is not for M < d²", "SM<->L2", "standard products",
     "formula beside an order that writes scores out", small_memory,
     "[constants](report.md#constants); that square tiles of scores are optimal there is not tested: a tile "
     "program keeps whole rows of d"},
    {"Hong and Kung; Saha and Ye; constants ours",
     "every exact algorithm reads T min(d² / M, 1/2) - p M elements or more", "SM<->L2",
     "standard products; SMs exchange data through slow memory alone", "counters against the bound",
     reads_above_bound, "[lower bounds](#lower-bounds)"},
};

constexpr Claim kOwn[] = {
    {"Constants", "FlashAttention-2's forward pass under the paper's block rule does not fall as 1/M",
     "SM<->L2", "M >= 4 d²", "formula", capped_queries, "[constants](report.md#constants)"},
    {"Closed form", "a pass's tile program gives its bytes at SM<->L2", "SM<->L2", "-",
     "counters, cause by cause", to_the_byte, "[every byte](report.md#account)"},
    {"Replay", "a model of the L2 gives DRAM reads, near the problems that it was made with", "DRAM",
     "cold L2", "counters", dram_fitted, "[measured](report.md#measured)"},
    {"Replay", "and of problems to which nothing was fitted", "DRAM", "cold L2", "counters", dram_not_fitted,
     "[not fitted to](report.md#holdout); [what a seed drew](prediction/README.md)"},
    {"Orders", "it tells which order of CTAs and tiles reads less before either is run", "DRAM",
     "predicted before it was measured", "counters", orders, "[predictions](report.md#predictions)"},
};

}  // namespace

std::span<const Claim> bound_claims() { return kBounds; }
std::span<const Claim> own_claims() { return kOwn; }

}  // namespace tilescope
