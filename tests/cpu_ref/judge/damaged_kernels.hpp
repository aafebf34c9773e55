// SPDX-License-Identifier: Apache-2.0
// Kernels that are wrong in a known way, and what a verdict says of them.
#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <string_view>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"

namespace tilescope::testing {

using enum TensorName;
inline constexpr TileShape kTile{16, 24};

inline const Kernel& kernel_named(std::string_view name) {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.name == name) return kernel;
  }
  throw BadInput("no such kernel");
}

/// What a damaged kernel does to its results.
enum class Damage { none, nudge, nan, unwritten, missing, wrong_type, scaled };

/// cpu:flash2 or cpu:standard whose output `name` is then damaged.
template <TensorName name, Damage damage, bool standard = false>
void run_damaged(const ProgramOptions& options, Direction direction, TensorSet& tensors,
                 TileObserver* observer) {
  kernel_named(standard ? "cpu:standard" : "cpu:flash2").run(options, direction, tensors, observer);
  const bool gradient = name != out && name != lse;
  if (gradient != (direction == Direction::backward)) return;
  Tensor& tensor = tensors[name];
  const std::int64_t middle = tensor.shape().elements() / 2;
  switch (damage) {
    case Damage::none:
      break;
    case Damage::nudge:
      tensor.set(middle, tensor.get(middle) + 0.01f);
      break;
    case Damage::nan:
      tensor.set(middle, std::numeric_limits<float>::quiet_NaN());
      break;
    case Damage::unwritten: {
      const Tensor right = tensor.as(tensor.dtype());
      tensors.allocate(name);
      for (std::int64_t i = 0; i < middle; ++i) tensor.set(i, right.get(i));
      break;
    }
    case Damage::missing:
      tensor = Tensor();
      break;
    case Damage::wrong_type:
      tensor = tensor.as(ElementType::bf16);
      break;
    case Damage::scaled:
      for (std::int64_t i = 0; i < 2 * middle; ++i) tensor.set(i, 1.01f * tensor.get(i));
      break;
  }
}

template <TensorName name, Damage damage, bool standard = false>
Kernel damaged_kernel() {
  Kernel kernel = kernel_named(standard ? "cpu:standard" : "cpu:flash2");
  kernel.run = run_damaged<name, damage, standard>;
  return kernel;
}

inline AttentionProblem small_problem(ElementType dtype = ElementType::fp32) {
  return {.heads = 4,
          .heads_kv = 2,
          .seqlen_q = 35,
          .seqlen_k = 53,
          .head_dim = 16,
          .dtype = dtype,
          .causal = true};
}

/// The tensors that are refused.
inline std::vector<TensorName> refused(const Verdict& verdict) {
  std::vector<TensorName> names;
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) names.push_back(tensor.tensor);
  }
  CHECK(verdict.passed() == names.empty());
  return names;
}

}  // namespace tilescope::testing
