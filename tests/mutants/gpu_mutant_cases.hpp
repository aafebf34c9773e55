// SPDX-License-Identifier: Apache-2.0
// The problems on which mutants of the GPU kernels are looked for.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope {

/// Whether this program has the kernel's launches.
bool is_mutated(const Kernel& kernel);

/// One kernel on one problem, with what its mirror gives and what it gives itself when no mutant is active.
class Case {
 public:
  Case(const Kernel& kernel, Direction direction, const AttentionProblem& problem, InputKind inputs,
       std::optional<BackwardOrder> order)
      : kernel(&kernel), direction(direction), problem_(problem), inputs_(inputs) {
    options = kernel.default_options(problem);
    options.set_query_splits(1);  // which small problems would all have
    if (order) options.backward = *order;
  }

  const Kernel* kernel;
  Direction direction;
  ProgramOptions options;

  struct Expected {
    Reference reference;
    TensorSet mirror;
    std::vector<TensorVerdict> clean;
  };
  /// Made when it is asked for first.
  Expected& expected() {
    if (expected_) return *expected_;
    Reference reference(problem_, inputs_, direction);
    reference.run(*mirror_of(*kernel), options, direction);
    TensorSet mirror = reference.take_outputs();
    std::vector<TensorVerdict> clean = reference.judge(*kernel, options, direction).tensors;
    return expected_.emplace(Expected{std::move(reference), std::move(mirror), std::move(clean)});
  }

 private:
  AttentionProblem problem_;
  InputKind inputs_;
  std::optional<Expected> expected_;
};

/// gpu:decode and gpu:mla-decode in three splits, of fp8 keys too, and in pages, where one CTA walks all of
/// them, first, being quick. Each kernel causal; with all features; with outliers. The other backward orders
/// with all features, that of the tensor cores in bf16 with head dimension 128; Hopper's at every head
/// dimension that it is compiled for, and there with shared kv tiles. With padding, with documents and
/// modified scores, in pages, and with tiles cut finer, those that can.
std::vector<Case> prepare_cases();

}  // namespace tilescope
