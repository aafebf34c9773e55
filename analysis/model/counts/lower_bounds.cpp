// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/lower_bounds.hpp"

#include <algorithm>
#include <cmath>

#include "analysis/model/counts/closed_form.hpp"

namespace tilescope {

FastMemory sm_memory(const Machine& machine) {
  return {machine.sm_count.value, machine.on_chip_bytes_per_sm.value};
}

FastMemory chip_memory(const Machine& machine) {
  return {1, machine.l2_bytes.value + machine.sm_count.value * machine.on_chip_bytes_per_sm.value};
}

double score_read_bound(double score_entries, double head_dim, double fast_elements, double processors) {
  const double per_entry = std::min(head_dim * head_dim / fast_elements, 0.5);
  return score_entries * per_entry - processors * fast_elements;
}

std::int64_t score_entries(const AttentionProblem& problem, Direction direction, Algorithm algorithm) {
  const bool both = direction == Direction::backward && algorithm != Algorithm::standard;
  return problem.visible_pairs() * (both ? 2 : 1);
}

ReadBound read_bound(const AttentionProblem& problem, Direction direction, Algorithm algorithm,
                     const FastMemory& memory) {
  const double width = element_bytes(problem.dtype);
  const double elements = score_read_bound(static_cast<double>(score_entries(problem, direction, algorithm)),
                                           static_cast<double>(problem.head_dim),
                                           static_cast<double>(memory.bytes_per_processor) / width,
                                           static_cast<double>(memory.processors));
  ReadBound bound;
  bound.compulsory_bytes = compulsory_bytes(problem, direction).read_bytes;
  bound.score_bytes = static_cast<std::int64_t>(std::max(0.0, elements) * width);
  return bound;
}

Growth growth(double seqlen, double head_dim, double fast_elements) {
  const double n = seqlen, d = head_dim, m = fast_elements;
  return {n * d + n * n, n * n * d * d / m, std::min(n * n * d * d / m, n * n * d / std::sqrt(m)),
          std::min((n * n * d * d + n * d * d * d) / m, (n * n * d + n * d * d) / std::sqrt(m))};
}

}  // namespace tilescope
