// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/tables/worst_cases.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <tuple>

namespace tilescope::cli {
namespace {

using Errors = std::map<std::string, TensorErrorRecord>;

/// Above 1: the tensor fails.
double share(const TensorErrorRecord& error) {
  if (error.non_finite > 0) return std::numeric_limits<double>::infinity();
  const double of_max = error.share.value_or(error.max_abs == 0 ? 0.0 : error.max_abs / error.bound);
  if (!error.rmse_bound || error.rmse == 0) return of_max;
  return std::max(of_max, error.rmse / *error.rmse_bound);
}

double largest_share(const RunEntry& run) {
  double largest = 0;
  for (const Errors* errors : {&run.error, &run.mirror_error}) {
    for (const auto& [tensor, error] : *errors) largest = std::max(largest, share(error));
  }
  return largest;
}

/// What stays apart.
auto group_of(const RunEntry& run) {
  const AttentionProblem& p = run.problem;
  std::string passes;
  for (const PassRecord& pass : run.passes) passes += pass.name + " ";
  return std::tuple(run.kernel, passes, p.dtype, p.causal, p.windowed(), !p.key_lengths.empty(),
                    p.group_size(), p.dropout > 0);
}

void take_larger(Errors& into, const Errors& from) {
  for (const auto& [tensor, error] : from) {
    const auto found = into.find(tensor);
    if (found == into.end() || share(error) > share(found->second)) into[tensor] = error;
  }
}

}  // namespace

std::vector<RunEntry> worst_cases(std::vector<RunEntry> runs) {
  std::map<decltype(group_of(runs.front())), RunEntry> worst;
  for (RunEntry& run : runs) {
    const std::int64_t failed = largest_share(run) <= 1.0 ? 0 : 1;
    const auto [found, is_new] = worst.try_emplace(group_of(run), run);
    RunEntry& group = found->second;
    if (is_new) {
      group.cases = 1;
      group.failed = failed;
      continue;
    }
    const std::int64_t cases = *group.cases + 1, failures = *group.failed + failed;
    Errors errors = group.error, mirror_errors = group.mirror_error;
    take_larger(errors, run.error);
    take_larger(mirror_errors, run.mirror_error);
    if (largest_share(run) > largest_share(group)) group = std::move(run);
    group.error = std::move(errors);
    group.mirror_error = std::move(mirror_errors);
    group.cases = cases;
    group.failed = failures;
  }
  std::vector<RunEntry> entries;
  for (auto& [group, entry] : worst) entries.push_back(std::move(entry));
  return entries;
}

}  // namespace tilescope::cli
