// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/counts/lower_bounds.hpp"

#include <algorithm>

#include "analysis/model/counts/closed_form.hpp"

namespace tilescope {

FastMemory sm_memory(const Machine& machine) {
  return {machine.sm_count.value, machine.on_chip_bytes_per_sm.value};
}

FastMemory chip_memory(const Machine& machine) {
  return {1, machine.l2_bytes.value + machine.sm_count.value * machine.on_chip_bytes_per_sm.value};
}

namespace {

double reads_of_entry(double products, double fast_elements) {
  return std::min(products * products / fast_elements, 0.5);
}

}  // namespace

double score_read_bound(double score_entries, double head_dim, double fast_elements, double processors) {
  return score_entries * reads_of_entry(head_dim, fast_elements) - processors * fast_elements;
}

FormedEntries formed_entries(const AttentionProblem& problem, Direction direction, Algorithm algorithm) {
  const bool backward = direction == Direction::backward;
  const std::int64_t pairs = problem.visible_pairs();
  return {backward && algorithm == Algorithm::standard ? 0 : pairs, backward ? pairs : 0};
}

ReadBound read_bound(const AttentionProblem& problem, Direction direction, Algorithm algorithm,
                     const FastMemory& memory) {
  const double width = element_bytes(problem.kv_type());  // no element is narrower
  const double fast_elements = static_cast<double>(memory.bytes_per_processor) / width;
  const FormedEntries entries = formed_entries(problem, direction, algorithm);
  const auto reads = [&](std::int64_t formed, std::int64_t products) {
    return static_cast<double>(formed) * reads_of_entry(static_cast<double>(products), fast_elements);
  };
  const double elements = reads(entries.scores, problem.head_dim) +
                          reads(entries.dprobs, problem.value_dim()) -
                          static_cast<double>(memory.processors) * fast_elements;
  ReadBound bound;
  bound.compulsory_bytes = compulsory_bytes(problem, direction).read_bytes;
  bound.score_bytes = static_cast<std::int64_t>(std::max(0.0, elements) * width);
  return bound;
}

}  // namespace tilescope
