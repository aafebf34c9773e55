// SPDX-License-Identifier: Apache-2.0
#include "analysis/explain/program_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "common/number_format.hpp"

namespace tilescope {
namespace {

/// What counters of one kernel repeat to; candidates that lie closer together are equally good.
constexpr double kNoise = 5e-5;

std::optional<std::int64_t> metric(const KernelGroup& kernel, const char* name) {
  const auto found = kernel.measured.find(name);
  if (found == kernel.measured.end()) return std::nullopt;
  return std::llround(found->second);
}

std::int64_t required_metric(const KernelGroup& kernel, const char* name) {
  const auto value = metric(kernel, name);
  if (!value) throw BadInput("kernel", kernel.name, std::string("must have ") + name + " in the record");
  return *value;
}

/// What is left of the counters when the causes are taken off, and the yardsticks of residuals.
struct Target {
  ReadWriteBytes bytes;
  double read_scale = 1, write_scale = 1;
  std::int64_t l1_hit_bytes = 0;

  /// Whether the program loads more than was read, and L1 served as much.
  bool short_by_hits(const ReadWriteBytes& candidate) const {
    const std::int64_t missing = candidate.read_bytes - bytes.read_bytes;
    return missing > 0 && missing <= l1_hit_bytes;
  }
  double read_error(const ReadWriteBytes& candidate) const {
    const double error = std::abs(static_cast<double>(bytes.read_bytes - candidate.read_bytes)) / read_scale;
    return short_by_hits(candidate) ? std::min(error, kExplained) : error;
  }
  double write_error(const ReadWriteBytes& candidate) const {
    return std::abs(static_cast<double>(bytes.write_bytes - candidate.write_bytes)) / write_scale;
  }
  double cost(const CandidateProgram& candidate) const {
    return std::log(kNoise + read_error(candidate.bytes)) + std::log(kNoise + write_error(candidate.bytes));
  }
};

Target target_of(const KernelGroup& kernel, const std::vector<NamedCause>& causes) {
  const std::int64_t read = required_metric(kernel, "sm_l2_read_bytes");
  const std::int64_t written = required_metric(kernel, "sm_l2_write_bytes");
  // A side without bytes is judged by a thousandth of the other.
  const double least = std::max(1.0, 1e-3 * static_cast<double>(read + written));
  return {{read - sum_of(causes, true), written - sum_of(causes, false)},
          std::max(least, static_cast<double>(read)),
          std::max(least, static_cast<double>(written)),
          metric(kernel, "l1_load_hit_bytes").value_or(0)};
}

/// Whether the counters rule the candidate out.
bool possible(const CandidateProgram& candidate, const KernelGroup& kernel, const Target& target) {
  const double excess = static_cast<double>(candidate.bytes.write_bytes - target.bytes.write_bytes);
  if (excess > kExplained * target.write_scale) return false;
  if (const auto reduced = metric(kernel, "reduction_bytes")) {
    const double off = std::abs(static_cast<double>(*reduced - candidate.reduce_bytes));
    return off <= 0.01 * static_cast<double>(std::max(*reduced, candidate.reduce_bytes));
  }
  const auto sectors = metric(kernel, "l2_reduction_sectors");
  return !sectors || (*sectors > 0) == (candidate.reduce_bytes > 0);
}

std::int64_t launched_ctas(const KernelGroup& kernel) {
  const auto& grid = kernel.launch.grid;
  return grid[0] * grid[1] * grid[2];
}

/// Tensor cores and copies favour powers of two; other blocks are in use, but less.
bool usual(TileShape tile) {
  const auto power_of_two = [](int size) { return (size & (size - 1)) == 0; };
  return power_of_two(tile.block_m) && power_of_two(tile.block_n);
}

/// Adds the candidate to the fit of its kind, or as a fit of its own.
void add_fit(std::vector<ProgramFit>& fits, const CandidateProgram& candidate, bool grid_agrees) {
  const auto same = std::find_if(fits.begin(), fits.end(), [&candidate](const ProgramFit& fit) {
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
  const Target& target;

  bool grid_agrees(const CandidateProgram& candidate) const {
    return candidate.num_ctas > 0 && candidate.num_ctas == launched_ctas(kernel);
  }
  double cost(const CandidateProgram& candidate) const {
    return target.cost(candidate) - (grid_agrees(candidate) ? std::log(10) : 0) +
           (usual(candidate.tile) ? 0 : std::log(4));
  }
};

Agreement agreement_of(const CandidateProgram& best, const Evidence& evidence) {
  const double read_error = evidence.target.read_error(best.bytes);
  const double write_error = evidence.target.write_error(best.bytes);
  // One side may agree by chance, as where a kernel reads what attention would: the other must come near, or
  // be written by what spills.
  const bool near_writes = write_error <= kNear || evidence.kernel.launch.local_bytes.value_or(0) > 0;
  const bool reads = read_error <= kExplained, writes = write_error <= kExplained;
  return reads && writes                 ? Agreement::explained
         : reads && near_writes          ? Agreement::reads_only
         : writes && read_error <= kNear ? Agreement::writes_only
                                         : Agreement::unexplained;
}

/// Those that counters do not tell from the best, one fit for each kind, the plain ones first.
std::vector<ProgramFit> as_good_as(const CandidateProgram& best, const Evidence& evidence,
                                   std::span<const CandidateProgram* const> ranked) {
  // Where nothing explains a side, small differences there speak for no candidate.
  constexpr double kUnexplainedNoise = 0.01;
  const auto limit = [](double error) { return error + (error <= kExplained ? kNoise : kUnexplainedNoise); };
  const Target& target = evidence.target;
  const double read_limit = limit(target.read_error(best.bytes));
  const double write_limit = limit(target.write_error(best.bytes));
  // The grid distinguishes candidates that the bytes do not, unless it is that of a persistent kernel.
  const bool by_grid = evidence.grid_agrees(best);
  std::vector<const CandidateProgram*> equals;
  for (const CandidateProgram* candidate : ranked) {
    const bool near = target.read_error(candidate->bytes) <= read_limit &&
                      target.write_error(candidate->bytes) <= write_limit && usual(candidate->tile);
    if ((near || candidate->bytes == best.bytes) && evidence.grid_agrees(*candidate) == by_grid) {
      equals.push_back(candidate);
    }
  }
  std::stable_sort(equals.begin(), equals.end(),
                   [](const auto* a, const auto* b) { return a->convention.size() < b->convention.size(); });
  std::vector<ProgramFit> fits;
  for (const CandidateProgram* candidate : equals) add_fit(fits, *candidate, by_grid);
  return fits;
}

std::vector<std::string> hints_of(const KernelGroup& kernel, const KernelFit& fit, const Target& target) {
  std::vector<std::string> hints;
  const bool counted = metric(kernel, "stored_data_bytes").has_value();
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
  const std::int64_t multicast = metric(kernel, "multicast_read_bytes").value_or(0);
  if (multicast > 0) {
    hints.push_back(fmt::format("{} arrived by multicast, counted at every CTA that received it",
                                format_bytes(static_cast<double>(multicast))));
  }
  if (matters(-fit.read_residual_bytes, target.read_scale)) {
    hints.push_back(
        fit.agreement == Agreement::explained
            ? fmt::format("L1 served {} of loads, more than what was not read",
                          format_bytes(static_cast<double>(target.l1_hit_bytes)))
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
  const auto first = std::find(std::begin(kCandidateBlocks), std::end(kCandidateBlocks), *sizes.begin());
  if (sizes.size() > 2 && std::equal(sizes.begin(), sizes.end(), first)) {
    return fmt::format("{}...{}", *sizes.begin(), *sizes.rbegin());
  }
  return sizes.size() == 1 ? std::to_string(*sizes.begin()) : fmt::format("({})", fmt::join(sizes, ", "));
}

}  // namespace

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

KernelFit fit_kernel(const KernelGroup& kernel, std::span<const CandidateProgram> candidates) {
  KernelFit fit;
  fit.causes = counted_causes(kernel.measured);
  const Target target = target_of(kernel, fit.causes);
  std::vector<const CandidateProgram*> ranked;
  for (const CandidateProgram& candidate : candidates) {
    if (possible(candidate, kernel, target)) ranked.push_back(&candidate);
  }
  if (ranked.empty()) {
    fit.read_residual_bytes = target.bytes.read_bytes;
    fit.write_residual_bytes = target.bytes.write_bytes;
    return fit;
  }
  const Evidence evidence{kernel, target};
  const CandidateProgram& best = **std::min_element(
      ranked.begin(), ranked.end(),
      [&evidence](const auto* a, const auto* b) { return evidence.cost(*a) < evidence.cost(*b); });
  fit.cost = evidence.cost(best);
  fit.read_residual_bytes = target.bytes.read_bytes - best.bytes.read_bytes;
  fit.write_residual_bytes = target.bytes.write_bytes - best.bytes.write_bytes;
  fit.agreement = agreement_of(best, evidence);
  fit.programs = as_good_as(best, evidence, ranked);
  fit.hints = hints_of(kernel, fit, target);
  return fit;
}

namespace {

/// Less may be noise of the counters.
const double kClearlyBetter = std::log(2);

std::int64_t scaled(std::int64_t value, std::int64_t groups, std::int64_t given) {
  return value / given * groups;  // exact: the value is a sum over the groups
}

/// What the candidates of `given` groups of heads would be of another number of them.
std::vector<CandidateProgram> tiled_candidates_of(std::span<const CandidateProgram> candidates,
                                                  std::int64_t groups, std::int64_t given) {
  std::vector<CandidateProgram> others;
  for (const CandidateProgram& candidate : candidates) {
    if (candidate.tile.block_m == 0) continue;
    CandidateProgram other = candidate;
    other.num_ctas = scaled(candidate.num_ctas, groups, given);
    other.bytes = {scaled(candidate.bytes.read_bytes, groups, given),
                   scaled(candidate.bytes.write_bytes, groups, given)};
    other.reduce_bytes = scaled(candidate.reduce_bytes, groups, given);
    others.push_back(std::move(other));
  }
  return others;
}

/// With how many groups of heads some candidate would have moved as much, L1's hits aside.
std::set<std::int64_t> numbers_worth_trying(const KernelGroup& kernel,
                                            std::span<const CandidateProgram> candidates,
                                            const std::vector<NamedCause>& causes, std::int64_t given) {
  constexpr std::int64_t kRange = 8;
  const auto of = [&kernel](const char* metric) {
    const auto found = kernel.measured.find(metric);
    return found == kernel.measured.end() ? 0 : found->second;
  };
  const double read = of("sm_l2_read_bytes"), written = of("sm_l2_write_bytes");
  const double read_target = read - static_cast<double>(sum_of(causes, true));
  const double write_target = written - static_cast<double>(sum_of(causes, false));
  std::set<std::int64_t> numbers;
  for (const CandidateProgram& candidate : candidates) {
    if (candidate.tile.block_m == 0) continue;
    const double reads_a_group = static_cast<double>(candidate.bytes.read_bytes) / static_cast<double>(given);
    const double writes_a_group =
        static_cast<double>(candidate.bytes.write_bytes) / static_cast<double>(given);
    const std::int64_t number = std::llround(write_target / writes_a_group);
    const auto groups = static_cast<double>(number);
    const double more_read = groups * reads_a_group - read_target;
    if (number == given || number * kRange < given || number > kRange * given ||
        std::abs(groups * writes_a_group - write_target) > kExplained * written ||
        more_read < -kExplained * read || more_read > kExplained * read + of("l1_load_hit_bytes")) {
      continue;
    }
    numbers.insert(number);
  }
  return numbers;
}

}  // namespace

std::optional<OtherHeads> heads_that_fit_better(const KernelGroup& kernel, const AttentionProblem& problem,
                                                std::span<const CandidateProgram> candidates,
                                                const KernelFit& given) {
  if (!problem.key_lengths.empty()) return std::nullopt;
  const std::int64_t groups = problem.batch * problem.heads_kv;
  std::optional<KernelFit> best;
  std::int64_t best_number = 0;
  for (const std::int64_t number : numbers_worth_trying(kernel, candidates, given.causes, groups)) {
    KernelFit fit = fit_kernel(kernel, tiled_candidates_of(candidates, number, groups));
    if (fit.agreement != Agreement::explained) continue;
    if (given.agreement == Agreement::explained && fit.cost > given.cost - kClearlyBetter) continue;
    if (best && fit.cost >= best->cost) continue;
    best = std::move(fit);
    best_number = number;
  }
  if (!best) return std::nullopt;
  return OtherHeads{best_number * problem.group_size(), best->programs.front(), best->read_residual_bytes,
                    best->write_residual_bytes};
}

}  // namespace tilescope
