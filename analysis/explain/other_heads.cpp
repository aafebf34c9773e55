// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "analysis/explain/program_fit.hpp"

namespace tilescope {
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
    if (!candidate.tiled()) continue;
    CandidateProgram other = candidate;
    other.num_ctas = scaled(candidate.num_ctas, groups, given);
    other.bytes = {scaled(candidate.bytes.read_bytes, groups, given),
                   scaled(candidate.bytes.write_bytes, groups, given)};
    other.reduce_bytes = scaled(candidate.reduce_bytes, groups, given);
    other.filled_bytes = scaled(candidate.filled_bytes, groups, given);
    if (other.through_l1) other.through_l1 = scaled(*candidate.through_l1, groups, given);
    other.must = {scaled(candidate.must.read_bytes, groups, given),
                  scaled(candidate.must.write_bytes, groups, given)};
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
    if (!candidate.tiled()) continue;
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
                                                const KernelFit& given,
                                                std::optional<std::int64_t> sm_count) {
  if (!problem.key_lengths.empty()) return std::nullopt;
  const std::int64_t groups = problem.batch * problem.heads_kv;
  std::optional<KernelFit> best;
  std::int64_t best_number = 0;
  for (const std::int64_t number : numbers_worth_trying(kernel, candidates, given.causes, groups)) {
    KernelFit fit = fit_kernel(kernel, tiled_candidates_of(candidates, number, groups), sm_count);
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
