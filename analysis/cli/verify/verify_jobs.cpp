// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <set>
#include <utility>

#include "analysis/cli/verify/verify.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope::cli {
namespace {

/// No multiple of a vector.
constexpr TileShape kSweepTile{16, 24};
constexpr std::int64_t kHeadDim = 16;
/// The sizes at which the GPU kernels' tiles change.
constexpr std::int64_t kTileHeadDims[] = {kHeadDim, 96, 128, 192, 256};

using TileSides = std::pair<int, int>;
TileSides sides(TileShape tile) { return {tile.block_m, tile.block_n}; }

/// Adds a run for each order of the backward pass that the case asks for.
void add_runs(VerifyJob& job, const Kernel& kernel, ProgramOptions options) {
  for (BackwardOrder order : backward_orders(job.verify_case, kernel)) {
    options.backward = order;
    job.runs.emplace_back(&kernel, options);
  }
}

/// The options of a case; a kernel's own tiles, whole, where this build has not what the case asks for.
ProgramOptions built_options(const VerifyCase& verify_case, const Kernel& kernel) {
  ProgramOptions options = case_options(verify_case, kernel);
  for (Direction direction : {Direction::forward, verify_case.direction}) {
    if (!build_lack(kernel, verify_case.problem, direction, options)) continue;
    options.passes = kernel.default_options(verify_case.problem).passes;
    options.diagonal_slices = 1;
  }
  return options;
}

/// Adds the cases round one tile shape, on that tile where a kernel takes it.
void add_sweep(std::vector<VerifyJob>& jobs, TileSides tile, std::int64_t head_dim, SweepSize size,
               const std::vector<const Kernel*>& kernels) {
  for (const VerifyCase& verify_case : verify_cases({tile.first, tile.second}, size, head_dim)) {
    VerifyJob job{verify_case, {}};
    for (const Kernel* kernel : kernels) add_runs(job, *kernel, built_options(verify_case, *kernel));
    jobs.push_back(std::move(job));
  }
}

bool takes_any_tile(const Kernel& kernel) {
  const AttentionProblem probe{.seqlen_q = kSweepTile.block_m, .seqlen_k = kSweepTile.block_n};
  ProgramOptions options = kernel.default_options(probe);
  options.set_tile(kSweepTile);
  return !kernel.refusal(probe, Direction::forward, options);
}

/// The shapes of all passes of all kernels at one head size.
std::set<TileSides> own_tiles(const std::vector<const Kernel*>& kernels, std::int64_t head_dim) {
  std::set<TileSides> tiles;
  for (const Kernel* kernel : kernels) {
    const ProgramOptions own = kernel->default_options({.head_dim = head_dim});
    for (const PassOptions& pass : own.passes) tiles.insert(sides(pass.tile));
  }
  return tiles;
}

}  // namespace

std::vector<VerifyJob> sweep_jobs(const std::vector<const Kernel*>& kernels, SweepSize size) {
  std::vector<const Kernel*> flexible, fixed;
  for (const Kernel* kernel : kernels) (takes_any_tile(*kernel) ? flexible : fixed).push_back(kernel);
  std::vector<VerifyJob> jobs;
  if (!flexible.empty()) add_sweep(jobs, sides(kSweepTile), kHeadDim, size, flexible);
  std::map<TileSides, std::vector<const Kernel*>> by_own_tile;
  for (const Kernel* kernel : flexible) {
    by_own_tile[sides(kernel->default_options({})[PassName::forward].tile)].push_back(kernel);
  }
  for (const auto& [tile, own] : by_own_tile) add_sweep(jobs, tile, kHeadDim, SweepSize::quick, own);
  std::set<TileSides> swept;  // at full size; a shape that another head size shares is swept quickly there
  for (std::int64_t head_dim : kTileHeadDims) {
    for (const TileSides& tile : own_tiles(fixed, head_dim)) {
      const bool first = swept.insert(tile).second;
      add_sweep(jobs, tile, head_dim, first ? size : SweepSize::quick, fixed);
    }
  }
  return jobs;
}

std::vector<VerifyJob> repeat_jobs(const std::vector<const Kernel*>& kernels) {
  std::vector<VerifyJob> jobs;
  for (ElementType dtype : {ElementType::fp32, ElementType::fp16, ElementType::bf16}) {
    for (const auto& [head_dim, seqlen] : {std::pair{64, 520}, {128, 333}, {200, 150}}) {
      for (bool causal : {false, true}) {
        VerifyJob job;
        job.verify_case.problem = {.batch = 2,
                                   .heads = 4,
                                   .heads_kv = 2,
                                   .seqlen_q = seqlen,
                                   .seqlen_k = seqlen + 77,
                                   .head_dim = head_dim,
                                   .dtype = dtype,
                                   .causal = causal,
                                   .dropout = causal ? 0.1 : 0.0};
        for (const Kernel* kernel : kernels) {
          add_runs(job, *kernel, kernel->default_options(job.verify_case.problem));
        }
        jobs.push_back(std::move(job));
      }
    }
  }
  return jobs;
}

}  // namespace tilescope::cli
