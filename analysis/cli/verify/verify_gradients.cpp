// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/verify/verify_gradients.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cpu_ref/judge/gradient_check.hpp"

namespace tilescope::cli {

std::vector<AttentionProblem> gradient_problems() {
  return {{.heads = 2, .heads_kv = 2, .seqlen_q = 40, .seqlen_k = 40, .head_dim = 64},
          {.heads = 2, .heads_kv = 1, .seqlen_q = 33, .seqlen_k = 57, .head_dim = 128, .causal = true}};
}

VerifyOutcome judge_gradients(const Kernel& kernel, const AttentionProblem& problem,
                              const ProgramOptions& options) {
  VerifyOutcome outcome;
  RunEntry& entry = outcome.entries.emplace_back();
  entry.problem = problem;
  entry.kernel = std::string(kernel.name);
  std::map<std::string, double> shares;
  bool passed = true;
  for (const GradientCheck& check : check_gradients(kernel, problem, options)) {
    const std::string name(to_string(check.gradient));
    entry.gradients.push_back({name, check.by_gradient, check.by_difference, check.bound});
    shares[name] = std::max(shares[name], std::abs(check.difference()) / check.bound);
    if (check.passed()) continue;
    passed = false;
    outcome.text += fmt::format(
        "  {} along a direction: {:.9g} by the gradient, {:.9g} by differences; off by {:.3g}, "
        "at most {:.3g}\n",
        name, check.by_gradient, check.by_difference, std::abs(check.difference()), check.bound);
  }
  std::string figures;
  for (const auto& [name, share] : shares) figures += fmt::format(" {} {:.2f}", name, share);
  outcome.text =
      fmt::format("{} {} {}, by differences:{}\n", passed ? "ok  " : "FAIL",
                  named_with_order(kernel, options, Direction::backward), describe(problem), figures) +
      outcome.text;
  ++(passed ? outcome.passed : outcome.failed);
  return outcome;
}

}  // namespace tilescope::cli
