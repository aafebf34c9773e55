// SPDX-License-Identifier: Apache-2.0
// Records to make reports of, the same on every machine, and what to look for in the reports.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/report/report.hpp"

namespace tilescope::testing {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Both directions on the h200 model, two heads.
inline RunEntry simulated(Algorithm algorithm, std::int64_t seqlen, TileShape tile) {
  const auto kernel = std::find_if(cpu_kernels().begin(), cpu_kernels().end(),
                                   [algorithm](const Kernel& k) { return k.algorithm == algorithm; });
  AttentionProblem problem;
  problem.heads = problem.heads_kv = 2;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.dtype = ElementType::fp16;
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  const Machine machine = load_machine("h200");
  const Direction both[] = {Direction::forward, Direction::backward};
  return simulate_run(*kernel, problem, plan_passes(*kernel, problem, both, options, machine), machine,
                      {.l2_curve = true});
}

inline RunRecord fixed_record(std::vector<RunEntry> runs) {
  RunRecord record;
  record.argv = {"/somewhere/tilescope", "simulate", "--causal", "--json", "here.json", "a b"};
  record.git.sha = "0123456789abcdef";
  record.when = "2025-01-01T00:00:00Z";
  record.runs = std::move(runs);
  return record;
}

/// Three algorithms at three lengths and three tiles: two sweeps, and two runs in neither.
inline std::vector<RunRecord> sweep_records() {
  std::vector<RunEntry> by_length, by_tile;
  for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
    for (const std::int64_t seqlen : {256, 64, 128})
      by_length.push_back(simulated(algorithm, seqlen, {16, 16}));
    for (const int block : {8, 16, 32}) by_tile.push_back(simulated(algorithm, 192, {block, block}));
  }
  return {fixed_record(by_length), fixed_record(by_tile),
          fixed_record(
              {simulated(Algorithm::standard, 100, {24, 24}), simulated(Algorithm::flash2, 100, {24, 24})})};
}

inline std::set<std::string> section_names(const Document& document) {
  std::set<std::string> names;
  for (const Section& section : document.sections) names.insert(section.name);
  return names;
}

}  // namespace tilescope::testing
