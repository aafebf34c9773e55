// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/library_kernels.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "analysis/model/replay/simulate_run.hpp"
#include "cpu_ref/schedule/program_parts.hpp"

namespace tilescope {
namespace {

using enum MaskStratum;

const std::vector<LibraryKernel>& rows() {
  using enum PassName;
  static const std::vector<LibraryKernel> all = {
      {.name = "pytorch:flash2",
       .math_unit = MathUnit::mma_sync,
       .launches = {{forward, 64, {128, 128}, 2, 128, {88, 208, 360}},
                    {forward, 128, {128, 64}, 2, 128, {64, 376, 224}},
                    {dkdvdq, 64, {128, 128}, 1, 256, {56, 56, 56}},
                    {dkdvdq, 128, {64, 128}, 1, 256, {16, 16, 8}}},
       .forward = {full, cross, causal, grouped, window},
       .backward = {full, causal, cross, window},
       .scan = Scan::descending},
      {.name = "pytorch:cudnn",
       .math_unit = MathUnit::wgmma,
       .launches = {{forward, 64, {128, 128}, 1},
                    {forward, 128, {128, 128}, 1},
                    {dkdvdq, 64, {64, 128}, 1},
                    {dkdvdq, 128, {64, 128}, 1}},
       .forward = {full, causal, cross, grouped},
       .backward = {full, causal, cross},
       .work_counter = true},
      {.name = "pytorch:efficient",
       .math_unit = MathUnit::mma_sync,
       .launches = {{forward, 64, {64, 64}, 4}, {forward, 128, {64, 128}, 2}},
       .forward = {full, causal, cross},
       .backward = {},
       .reloads_queries = true},
      {.name = "triton:plain",
       .math_unit = MathUnit::wgmma,
       .launches = {{forward, 64, {128, 64}, 2},
                    {forward, 128, {128, 64}, 1},
                    {dkdv, 64, {64, 128}, 1},
                    {dkdv, 128, {64, 128}, 1},
                    {dq, 64, {128, 64}, 2},
                    {dq, 128, {128, 64}, 1}},
       .forward = {full, causal, grouped},
       .backward = {full, causal, grouped},
       .rows_multiple = 128,
       .backward_order = BackwardOrder::split},
      {.name = "flash-attn:flash4",
       .math_unit = MathUnit::wgmma,
       .launches = {{forward, 128, {128, 128}, 1}, {dkdvdq, 128, {64, 128}, 1}},
       .forward = {full, cross, causal, grouped, window},
       .backward = {full, causal, grouped, window},
       .heads_by_sections = true},
  };
  return all;
}

const LibraryLaunch& launch_of(const LibraryKernel& kernel, PassName pass, std::int64_t head_dim) {
  for (const LibraryLaunch& launch : kernel.launches) {
    if (launch.pass == pass && launch.head_dim == head_dim) return launch;
  }
  throw std::out_of_range(std::string(kernel.name) + " has no launch at head_dim " +
                          std::to_string(head_dim));
}

std::int64_t spilled_by_cta(const LibraryLaunch& launch, const AttentionProblem& problem) {
  const bool causal_alone = problem.causal && !problem.windowed();
  const std::size_t mask = causal_alone ? 1 : problem.masked() ? 2 : 0;
  return std::int64_t{launch.threads} * launch.spilled[mask];
}

/// Heads whose K and V fit 50 MiB, the largest power of two. Source: FlashAttention-4's
/// SingleTileLPTScheduler.
int heads_of_section(const AttentionProblem& problem) {
  constexpr std::int64_t kSectionBytes = std::int64_t{50} << 20;
  const std::int64_t of_head = problem.seqlen_k * 2 * problem.head_dim * element_bytes(problem.dtype);
  int heads = 1;
  while (2 * heads * of_head <= kSectionBytes) heads *= 2;
  return heads;
}

ProgramOptions options_of(const LibraryKernel& kernel, const AttentionProblem& problem, Direction direction) {
  ProgramOptions options;
  for (const LibraryLaunch& launch : kernel.launches) {
    if (launch.head_dim == problem.head_dim) options[launch.pass].tile = launch.tile;
  }
  options.backward = kernel.backward_order;
  options.scan = kernel.scan;
  options.work_counter = kernel.work_counter;
  if (!kernel.heads_by_sections) return options;
  const bool groups = problem.group_size() > 1;
  if (direction == Direction::backward) {
    if (groups) options.set_query_splits(static_cast<int>(problem.group_size()));
    return options;
  }
  options.scan = Scan::descending;
  options.pack_gqa = groups;
  if (problem.masked()) {
    options.order = TileOrder::head_swizzled;
    options.swizzled_heads = heads_of_section(problem);
  }
  return options;
}

/// What a record says of who ran: the rest of a row belongs to kernels of ours.
Kernel row_of(const LibraryKernel& kernel) {
  Kernel row{};
  row.name = kernel.name;
  row.algorithm = Algorithm::flash2;
  row.math_unit = kernel.math_unit;
  return row;
}

}  // namespace

std::vector<int> LibraryKernel::head_dims() const {
  std::vector<int> dims;
  for (const LibraryLaunch& launch : launches) {
    if (launch.pass == PassName::forward) dims.push_back(launch.head_dim);
  }
  return dims;
}

std::span<const LibraryKernel> library_kernels() { return rows(); }

std::vector<LibraryPass> library_passes(const LibraryKernel& kernel, const AttentionProblem& problem,
                                        Direction direction) {
  std::vector<LibraryPass> passes;
  const ProgramOptions options = options_of(kernel, problem, direction);
  for (TileProgram& program : build_programs(Algorithm::flash2, direction, problem, options)) {
    if (program.phases.empty()) continue;
    if (kernel.reloads_queries) {
      program.prologue.clear();
      program.phases.front().insert(program.phases.front().begin(), load(TensorName::q));
    }
    const LibraryLaunch& launch = launch_of(kernel, program.name, problem.head_dim);
    passes.push_back({std::move(program), launch.ctas_per_sm, spilled_by_cta(launch, problem)});
  }
  return passes;
}

RunEntry simulate_library(const LibraryKernel& kernel, const AttentionProblem& problem, Direction direction,
                          const Machine& machine) {
  const Kernel row = row_of(kernel);
  std::optional<RunEntry> entry;
  for (LibraryPass& pass : library_passes(kernel, problem, direction)) {
    const std::array planned = {PlannedPass{direction, std::move(pass.program)}};
    const SimulationOptions options{.ctas_per_sm = pass.ctas_per_sm,
                                    .spilled_cta_bytes = pass.spilled_cta_bytes,
                                    .pages = PagePlacement::random,
                                    .predict = false};
    RunEntry one = simulate_run(row, problem, planned, machine, options);
    one.runs_on = "gpu";
    if (!entry) {
      entry = std::move(one);
    } else {
      entry->passes.push_back(std::move(one.passes.front()));
    }
  }
  return std::move(entry).value();
}

}  // namespace tilescope
