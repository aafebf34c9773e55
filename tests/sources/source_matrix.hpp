// SPDX-License-Identifier: Apache-2.0
// A source's problems on every kernel that runs here, held to the source's tolerance and to ours.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::testing {

struct SourceRule {
  double most_error = 0;                // of any element against the exact result; 0: the source names none
  float input_deviation = 1;            // of q, k and v
  std::vector<BackwardOrder> orders{};  // that the source computes; none: all that a kernel has
  TileShape tile{32, 32};               // of kernels that take any
};

inline TensorSet source_inputs(const AttentionProblem& problem, Direction direction, float deviation) {
  TensorSet tensors(problem);
  fill_random_inputs(tensors, direction);
  for (const TensorName name : {TensorName::q, TensorName::k, TensorName::v}) {
    Tensor& tensor = tensors[name];
    for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) tensor.set(i, deviation * tensor.get(i));
  }
  return tensors;
}

inline std::vector<ProgramOptions> source_options(const Kernel& kernel, const AttentionProblem& problem,
                                                  Direction direction, const SourceRule& rule) {
  ProgramOptions options = kernel.default_options(problem);
  if (!kernel.tile_choices) options.set_tile(rule.tile);
  std::vector<ProgramOptions> all;
  const std::vector<BackwardOrder>& own = kernel.backward_orders;
  if (direction == Direction::forward || own.empty()) return {options};
  for (const BackwardOrder order : own) {
    const auto& wanted = rule.orders;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), order) == wanted.end()) continue;
    options.backward = order;
    all.push_back(options);
  }
  return all;
}

/// Checks every kernel that takes the problem. @returns how many runs that were
inline int check_source(const AttentionProblem& problem, Direction direction, const SourceRule& rule) {
  CAPTURE(describe(problem));
  Reference reference(source_inputs(problem, direction, rule.input_deviation), direction);
  int runs = 0;
  for (const Kernel* kernel : all_kernels()) {
    if (!is_runnable(*kernel)) continue;
    for (const ProgramOptions& options : source_options(*kernel, problem, direction, rule)) {
      if (kernel->refusal(problem, direction, options)) continue;
      CAPTURE(kernel->name);
      CAPTURE(to_string(options.backward));
      const Verdict verdict = reference.judge(*kernel, options, direction);
      for (const TensorVerdict& tensor : verdict.tensors) {
        CAPTURE(to_string(tensor.tensor));
        CAPTURE(tensor.error.max_abs);
        CAPTURE(tensor.bound);
        CHECK(tensor.passed);
        if (rule.most_error > 0) CHECK(tensor.error.within(rule.most_error));
      }
      ++runs;
    }
  }
  return runs;
}

}  // namespace tilescope::testing
