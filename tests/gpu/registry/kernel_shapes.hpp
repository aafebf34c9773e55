// SPDX-License-Identifier: Apache-2.0
// Problems of every shape that a kernel of the GPU takes.
#pragma once

#include "cpu_ref/schedule/problem.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::testing {

inline constexpr int kShapeHeadDims[] = {1, 15, 16, 17, 32, 64, 65, 96, 128, 129, 192, 200, 256};

/// Every combination of compiled and uncompiled head dimensions with the element types a rung takes.
template <typename Visit>
void for_each_shape(const GpuKernel& rung, Visit&& visit) {
  for (const int head_dim : kShapeHeadDims) {
    for (ElementType dtype : kElementTypes) {
      AttentionProblem problem{
          .heads = 4, .heads_kv = 2, .seqlen_q = 333, .seqlen_k = 500, .head_dim = head_dim, .dtype = dtype};
      problem.causal = head_dim % 2 == 0;
      problem.shared_kv = rung.row.can.forward.has(Feature::shared_kv);
      const ProgramOptions options = rung.row.default_options(problem);
      if (rung.row.refusal(problem, Direction::forward, options)) continue;
      visit(problem, options);
    }
  }
}

}  // namespace tilescope::testing
