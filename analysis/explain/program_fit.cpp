// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/program_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/explain/fit_target.hpp"
#include "analysis/explain/launch_evidence.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// Tensor cores and copies favour powers of two; other blocks are in use, but less.
bool usual(TileShape tile) {
  const auto power_of_two = [](int size) { return (size & (size - 1)) == 0; };
  return power_of_two(tile.block_m) && power_of_two(tile.block_n);
}

/// Adds the candidate to the fit of its kind, or as a fit of its own.
void add_fit(std::vector<ProgramFit>& fits, const CandidateProgram& candidate, bool grid_agrees) {
  const auto same = std::ranges::find_if(fits, [&candidate](const ProgramFit& fit) {
    return fit.name == candidate.name && fit.convention == candidate.convention;
  });
  const bool tiled = candidate.tile.block_m > 0;
  if (same == fits.end()) {
    fits.push_back({candidate.name, candidate.convention, candidate.bytes, {}, grid_agrees});
    if (tiled) fits.back().tiles = {candidate.tile};
  } else if (tiled) {
    same->tiles.push_back(candidate.tile);
  }
}

/// A kernel beside its candidates: what speaks for each of them.
struct Evidence {
  const KernelGroup& kernel;
  const FitTarget& target;
  const LaunchEvidence& launch;

  bool grid_agrees(const CandidateProgram& candidate) const { return launch.grid_agrees(candidate); }
  /// Less the logarithm of its odds: what is left over, and what the launch says.
  double cost(const CandidateProgram& candidate) const {
    return std::log(kNoise + target.read_error(candidate)) +
           std::log(kNoise + target.write_error(candidate)) - launch.log_odds(candidate);
  }
};

Agreement agreement_of(const CandidateProgram& best, const Evidence& evidence) {
  const double read_error = evidence.target.read_error(best);
  const double write_error = evidence.target.write_error(best);
  // One side may agree by chance, as where a kernel reads what attention would: the other must come near, or
  // be written by what spills.
  const bool near_writes = write_error <= kNear || evidence.kernel.launch.local_bytes.value_or(0) > 0;
  const bool reads = read_error <= kExplained, writes = write_error <= kExplained;
  return reads && writes                 ? Agreement::explained
         : reads && near_writes          ? Agreement::reads_only
         : writes && read_error <= kNear ? Agreement::writes_only
                                         : Agreement::unexplained;
}

/// How likely each of `fits` is among all candidates that leave nothing over.
void set_posteriors(std::vector<ProgramFit>& fits, const Evidence& evidence,
                    std::span<const CandidateProgram* const> ranked, double least_cost) {
  double all = 0;
  for (const CandidateProgram* candidate : ranked) {
    if (!evidence.target.explained_by(*candidate)) continue;
    const double weight = std::exp(least_cost - evidence.cost(*candidate));
    all += weight;
    for (ProgramFit& fit : fits) {
      if (fit.name == candidate->name && fit.convention == candidate->convention) fit.posterior += weight;
    }
  }
  for (ProgramFit& fit : fits) fit.posterior = all > 0 ? fit.posterior / all : 0;
}

/// Those that counters do not tell from the best, one fit for each kind, the plain ones first.
std::vector<ProgramFit> as_good_as(const CandidateProgram& best, const Evidence& evidence,
                                   std::span<const CandidateProgram* const> ranked) {
  // Where nothing explains a side, small differences there speak for no candidate.
  constexpr double kUnexplainedNoise = 0.01;
  const auto limit = [](double error) { return error + (error <= kExplained ? kNoise : kUnexplainedNoise); };
  const FitTarget& target = evidence.target;
  const double read_limit = limit(target.read_error(best));
  const double write_limit = limit(target.write_error(best));
  // The grid distinguishes candidates that the bytes do not, unless it is that of a persistent kernel.
  const bool by_grid = evidence.grid_agrees(best);
  std::vector<const CandidateProgram*> equals;
  for (const CandidateProgram* candidate : ranked) {
    const bool near = target.read_error(*candidate) <= read_limit &&
                      target.write_error(*candidate) <= write_limit && usual(candidate->tile);
    if ((near || candidate->bytes == best.bytes) && evidence.grid_agrees(*candidate) == by_grid) {
      equals.push_back(candidate);
    }
  }
  std::ranges::stable_sort(
      equals, [](const auto* a, const auto* b) { return a->convention.size() < b->convention.size(); });
  std::vector<ProgramFit> fits;
  for (const CandidateProgram* candidate : equals) add_fit(fits, *candidate, by_grid);
  return fits;
}

std::vector<std::string> hints_of(const KernelGroup& kernel, const KernelFit& fit, const FitTarget& target) {
  std::vector<std::string> hints;
  const bool counted = metric_of(kernel, "stored_data_bytes").has_value();
  const auto matters = [](std::int64_t bytes, double scale) {
    return static_cast<double>(bytes) > kExplained * scale;
  };
  const bool more_written = matters(fit.write_residual_bytes, target.write_scale);
  const bool more_read = matters(fit.read_residual_bytes, target.read_scale);
  const std::int64_t local = kernel.launch.local_bytes.value_or(0);
  if (!counted && local > 0 && (more_written || more_read)) {
    hints.push_back(fmt::format("{} B of local memory a thread: spills", local));
  }
  if (!counted && more_written && local == 0) hints.push_back("partly written sectors, or other tensors");
  if (!counted && !hints.empty()) hints.back() += "; `--metrics traffic,causes` counts them";
  const std::int64_t multicast = metric_of(kernel, "multicast_read_bytes").value_or(0);
  if (multicast > 0) {
    hints.push_back(fmt::format("{} arrived by multicast, counted at every CTA that received it",
                                format_bytes(static_cast<double>(multicast))));
  }
  if (matters(-fit.read_residual_bytes, target.read_scale)) {
    hints.push_back(
        target.short_by_hits(*fit.best)
            ? fmt::format("L1 served {} of loads, more than what was not read",
                          format_bytes(static_cast<double>(target.l1_hit_bytes.value_or(0))))
            : "fewer bytes were read than the program loads: L1 hits, or loads that the kernel spares");
  }
  if (counted && (more_written || more_read) && fit.agreement != Agreement::explained) {
    hints.push_back("the counted causes leave a rest: perhaps tiles or tensors of no candidate");
  }
  return hints;
}

/// "any", "64...128", "(64, 96)"
std::string sizes_text(const std::set<int>& sizes) {
  if (sizes.size() == std::size(kCandidateBlocks)) return "any";
  const auto first = std::ranges::find(kCandidateBlocks, *sizes.begin());
  if (sizes.size() > 2 && std::equal(sizes.begin(), sizes.end(), first)) {
    return fmt::format("{}...{}", *sizes.begin(), *sizes.rbegin());
  }
  return sizes.size() == 1 ? std::to_string(*sizes.begin()) : fmt::format("({})", fmt::join(sizes, ", "));
}

}  // namespace

std::string chance_text(double chance) {
  constexpr double kLeastShown = 1e-3;
  return chance < kLeastShown ? "under 0.1 %" : fmt::format("{:.1f} %", 100 * chance);
}

std::string_view to_string(Agreement agreement) {
  constexpr std::string_view kTexts[] = {"explained",        "not certain",   "reads explained",
                                         "writes explained", "not explained", "no attention kernel"};
  return kTexts[static_cast<std::size_t>(agreement)];
}

std::string ProgramFit::tile_text() const {
  if (tiles.empty()) return "";
  std::set<int> block_m, block_n;
  for (const TileShape& tile : tiles) block_m.insert(tile.block_m), block_n.insert(tile.block_n);
  if (block_m.size() * block_n.size() == tiles.size()) {
    return sizes_text(block_m) + " x " + sizes_text(block_n);
  }
  constexpr std::size_t kShown = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, tiles.size()); ++i) {
    text += fmt::format("{}{} x {}", i > 0 ? ", " : "", tiles[i].block_m, tiles[i].block_n);
  }
  return tiles.size() > kShown ? text + fmt::format(" and {} more", tiles.size() - kShown) : text;
}

namespace {

/// Of the candidates that the launch rules out the one whose bytes come nearest, if possible one that the
/// kernel's name leaves room for, and why it is none.
std::string ruled_out_text(std::span<const CandidateProgram> candidates, const FitTarget& target,
                           const LaunchEvidence& launch) {
  const CandidateProgram* nearest = nullptr;
  std::pair<bool, double> least;  // whether the name denies it, and how far off it is
  for (const CandidateProgram& candidate : candidates) {
    if (!candidate.tiled()) continue;
    const std::pair<bool, double> distance = {!launch.name_allows(candidate),
                                              target.read_error(candidate) + target.write_error(candidate)};
    if (nearest == nullptr || distance < least) nearest = &candidate, least = distance;
  }
  if (nearest == nullptr) return "";
  return fmt::format("nearest by bytes alone is {}, {} x {}, but {}", nearest->name, nearest->tile.block_m,
                     nearest->tile.block_n, launch.against(*nearest).value_or("its counters say otherwise"));
}

/// Where no candidate is left.
void set_unexplained(KernelFit& fit, std::span<const CandidateProgram> candidates, const FitTarget& target,
                     const LaunchEvidence& launch, bool names_nearest) {
  fit.read_residual_bytes = target.bytes.read_bytes;
  fit.write_residual_bytes = target.bytes.write_bytes;
  if (launch.other_work()) {
    fit.agreement = Agreement::no_attention;
  } else if (names_nearest) {
    const std::string text = ruled_out_text(candidates, target, launch);
    if (!text.empty()) fit.hints.push_back(text);
  }
}

}  // namespace

KernelFit fit_kernel(const KernelGroup& kernel, std::span<const CandidateProgram> candidates,
                     std::optional<std::int64_t> sm_count, bool names_nearest) {
  KernelFit fit;
  fit.causes = counted_causes(kernel.measured);
  const FitTarget target = fit_target(kernel, fit.causes);
  const LaunchEvidence launch(kernel, sm_count);
  std::vector<const CandidateProgram*> launchable, ranked;
  for (const CandidateProgram& candidate : candidates) {
    if (launch.against(candidate)) continue;
    launchable.push_back(&candidate);
    if (counters_allow(candidate, kernel, target)) ranked.push_back(&candidate);
  }
  if (ranked.empty()) {
    set_unexplained(fit, candidates, target, launch, names_nearest);
    return fit;
  }
  const Evidence evidence{kernel, target, launch};
  const CandidateProgram& best = **std::ranges::min_element(
      ranked, [&evidence](const auto* a, const auto* b) { return evidence.cost(*a) < evidence.cost(*b); });
  fit.cost = evidence.cost(best);
  fit.best = best;
  fit.asked_again_bytes = target.expected_reads(best) - best.bytes.read_bytes;
  fit.read_residual_bytes = target.bytes.read_bytes - target.expected_reads(best);
  fit.write_residual_bytes = target.bytes.write_bytes - best.bytes.write_bytes;
  fit.agreement = agreement_of(best, evidence);
  fit.programs = as_good_as(best, evidence, ranked);
  set_posteriors(fit.programs, evidence, ranked, fit.cost);
  if (fit.agreement == Agreement::explained) {
    fit.chance = explained_by_chance(kernel, target, launchable, best);
    if (*fit.chance > kMostChance) fit.agreement = Agreement::not_certain;
  }
  fit.hints = hints_of(kernel, fit, target);
  return fit;
}

}  // namespace tilescope
