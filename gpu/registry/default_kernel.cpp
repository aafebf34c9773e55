// SPDX-License-Identifier: Apache-2.0
#include "gpu/registry/default_kernel.hpp"

#include <algorithm>
#include <vector>

namespace tilescope {
namespace {

/// GPU kernels of FlashAttention-2's order that stand on the ladder, the highest rung first.
std::vector<const Kernel*> rungs_of_flash2() {
  std::vector<const Kernel*> rungs;
  for (const Kernel* kernel : all_kernels()) {
    if (kernel->algorithm == Algorithm::flash2 && kernel->rung != 0 && kernel->on_gpu())
      rungs.push_back(kernel);
  }
  std::ranges::stable_sort(rungs, [](const Kernel* a, const Kernel* b) { return a->rung > b->rung; });
  return rungs;
}

}  // namespace

DefaultKernel default_kernel(std::span<const TargetMachine> machines, const AttentionProblem& problem,
                             std::span<const Direction> directions,
                             const std::function<ProgramOptions(const Kernel&)>& options) {
  // Why a kernel cannot do it, as half a sentence behind its name, or nothing if it can.
  const auto hindrance = [&](const Kernel& kernel) -> std::optional<std::string> {
    for (const TargetMachine& machine : machines) {
      if (machine.compute_capability && !kernel.chips.has(*machine.compute_capability))
        return "does not run on " + machine.name;
    }
    try {
      const ProgramOptions chosen = options(kernel);
      for (const Direction direction : directions) {
        if (auto refusal = kernel.refusal(problem, direction, chosen)) return refusal;
      }
    } catch (const BadInput& error) {  // a choice that it does not offer
      return std::string("refuses: ") + error.what();
    }
    return std::nullopt;
  };
  std::string where;
  for (const TargetMachine& machine : machines)
    where += (where.empty() ? "default for " : ", ") + machine.name;
  for (const Kernel* kernel : all_kernels()) {
    if (!kernel->first_choice || !kernel->first_choice(problem) || hindrance(*kernel)) continue;
    return {kernel, where + ": made for problems like this one"};
  }
  std::string passed_over, newer;
  for (const Kernel* kernel : rungs_of_flash2()) {
    constexpr int kA100 = 80;
    const auto lack = hindrance(*kernel);
    if (!kernel->chips.has(kA100)) {
      if (!lack && newer.empty()) newer = std::string(kernel->name) + " is not";
      continue;
    }
    if (!lack) {
      const std::string& others = passed_over.empty() ? newer : passed_over;
      return {kernel,
              where + ": newest kernel for A100 and later" + (others.empty() ? "" : " (" + others + ")")};
    }
    if (passed_over.empty()) passed_over = std::string(kernel->name) + " " + *lack;
  }
  return {&find_kernel("cpu:flash2"), "default where " + passed_over};
}

}  // namespace tilescope
