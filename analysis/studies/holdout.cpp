// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/holdout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string_view>

#include "analysis/model/replay/dram_intervals.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "analysis/studies/dice.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

struct KernelStratum {
  const char* kernel;
  Direction direction;
  double most_flops;  // forward: some tens of milliseconds
  double longest;
  bool fp32 = false;
};
constexpr KernelStratum kKernelStrata[] = {
    {"gpu:flash3", Direction::forward, 8e12, 96e3},
    {"gpu:flash3", Direction::backward, 4e12, 64e3},
    {"gpu:flash2-mma", Direction::forward, 4e12, 96e3},
    {"gpu:flash2-simt", Direction::forward, 4e11, 48e3, true},
    {"gpu:flash3", Direction::forward, 8e12, 96e3},
    {"gpu:flash3", Direction::backward, 4e12, 64e3},
    {"gpu:flash2-mma", Direction::backward, 2e12, 64e3},
    {"gpu:flash1", Direction::forward, 3e11, 32e3},
};
constexpr int kMaskStrata = 5;

/// Its queries, mask and heads, where it has keys, head_dim and a type.
/// @param most_flops  of all heads, at most
template <std::size_t kGroups>
void add_queries_and_heads(AttentionProblem& problem, Dice& dice, MaskStratum mask,
                           const int (&groups)[kGroups], double most_flops) {
  problem.seqlen_q = problem.seqlen_k;
  problem.causal = mask == MaskStratum::causal || (mask == MaskStratum::grouped && dice.uniform() < 0.5);
  if (mask == MaskStratum::window) {
    problem.window_left = dice.log_uniform(2e3, 0.5 * static_cast<double>(problem.seqlen_k));
    problem.window_right = 0;
  }
  if (mask == MaskStratum::cross) {
    problem.seqlen_q = dice.log_uniform(1e3, 0.25 * static_cast<double>(problem.seqlen_k));
  }
  const std::int64_t group = mask == MaskStratum::grouped ? dice.one_of(groups) : 1;
  const auto pairs = static_cast<double>(problem.visible_pairs());
  const double of_group = 4 * pairs * static_cast<double>(problem.head_dim * group);
  const double most = std::clamp(most_flops / of_group, 1.0, 64.0);
  problem.heads_kv = std::max<std::int64_t>(1, dice.log_uniform(std::max(1.0, most / 8), most));
  problem.heads = problem.heads_kv * group;
}

AttentionProblem draw_problem(Dice& dice, const KernelStratum& kernel, MaskStratum mask) {
  constexpr double kShortest = 10e3;
  AttentionProblem problem;
  problem.head_dim = dice.one_of({64, 64, 80, 96, 128, 128, 128, 160, 192, 256});
  problem.dtype = kernel.fp32            ? ElementType::fp32
                  : dice.uniform() < 0.5 ? ElementType::fp16
                                         : ElementType::bf16;
  problem.seqlen_k = dice.log_uniform(kShortest, kernel.longest);
  add_queries_and_heads(problem, dice, mask, {2, 4, 7, 8}, kernel.most_flops);
  return problem;
}

struct LibraryStratum {
  std::string_view kernel;
  Direction direction;
  double most_flops;  // up to some tens of milliseconds
};
constexpr LibraryStratum kLibraryStrata[] = {
    {"pytorch:flash2", Direction::forward, 6e12},     {"pytorch:cudnn", Direction::forward, 6e12},
    {"triton:plain", Direction::forward, 4e12},       {"flash-attn:flash4", Direction::forward, 6e12},
    {"pytorch:efficient", Direction::forward, 3e12},  {"pytorch:flash2", Direction::backward, 3e12},
    {"pytorch:cudnn", Direction::backward, 3e12},     {"triton:plain", Direction::backward, 2e12},
    {"flash-attn:flash4", Direction::backward, 3e12},
};

/// Whether FlashAttention-2 leaves the keys of a q tile to one CTA: it has CTAs for four fifths of what two
/// an SM are, of 132. Source: num_splits_heuristic of its flash_api.cpp.
bool has_ctas_enough(const AttentionProblem& problem) {
  constexpr std::int64_t kRowsOfTile = 64, kEnough = 212;
  return problem.heads * ((problem.seqlen_q + kRowsOfTile - 1) / kRowsOfTile) >= kEnough;
}

AttentionProblem draw_library_problem(Dice& dice, const LibraryStratum& stratum, const LibraryKernel& kernel,
                                      MaskStratum mask) {
  // Longer than ours: where the K and V of the heads under way fit the L2, reads are what they must be.
  constexpr double kShortest = 16e3, kLongest = 96e3;
  const std::vector<int> dims = kernel.head_dims();
  AttentionProblem problem;
  problem.head_dim = dims[static_cast<std::size_t>(dice.uniform() * static_cast<double>(dims.size()))];
  problem.dtype = dice.uniform() < 0.5 ? ElementType::fp16 : ElementType::bf16;
  const std::int64_t multiple = kernel.rows_multiple;
  problem.seqlen_k = dice.log_uniform(kShortest, kLongest) / multiple * multiple;
  add_queries_and_heads(problem, dice, mask, {2, 4, 8}, stratum.most_flops);
  while (!has_ctas_enough(problem)) problem.heads += problem.heads / problem.heads_kv, ++problem.heads_kv;
  return problem;
}

Machine lru(Machine machine, std::int64_t bytes) {
  machine.l2_ways.reset();
  machine.l2_dirty_ways.reset();
  machine.sm_groups.reset();
  machine.l2_effective_bytes.value = bytes;
  return machine;
}

std::vector<PlannedPass> passes_of(const DrawnRun& drawn, const Machine& machine) {
  return plan_passes(*drawn.kernel, drawn.problem, std::array{drawn.direction},
                     drawn.kernel->default_options(drawn.problem), machine);
}

std::vector<RunEntry> predict(const DrawnRun& drawn, const Machine& machine) {
  const Kernel& kernel = *drawn.kernel;
  const auto passes = passes_of(drawn, machine);
  std::vector<RunEntry> entries;
  for (const Rival& rival : rivals_of(machine)) {
    entries.push_back(simulate_run(kernel, drawn.problem, passes, rival.machine,
                                   SimulationOptions{.pages = PagePlacement::random}));
  }
  add_dram_intervals(entries.front());
  return entries;
}

std::vector<RunEntry> predict(const DrawnLibraryRun& drawn, const Machine& machine) {
  std::vector<RunEntry> entries;
  for (const Rival& rival : rivals_of(machine)) {
    entries.push_back(simulate_library(*drawn.kernel, drawn.problem, drawn.direction, rival.machine));
  }
  add_dram_intervals(entries.front(), kWritesOfLibraries);
  return entries;
}

double seconds_of(const DrawnLibraryRun& drawn) {
  std::vector<PlannedPass> passes;
  for (LibraryPass& pass : library_passes(*drawn.kernel, drawn.problem, drawn.direction)) {
    passes.push_back({drawn.direction, std::move(pass.program)});
  }
  return replay_seconds(passes, false);
}

}  // namespace

std::vector<DrawnRun> drawn_runs(std::uint64_t seed, int count, std::span<const Kernel* const> kernels) {
  std::vector<DrawnRun> runs;
  for (int i = 0; i < count; ++i) {
    Dice dice(seed, i);
    constexpr int kKernels = std::size(kKernelStrata);
    const KernelStratum& stratum = kKernelStrata[i % kKernels];
    const auto mask = static_cast<MaskStratum>((i + i / kKernels) % kMaskStrata);
    const auto kernel = std::ranges::find_if(
        kernels, [&stratum](const Kernel* one) { return one->name == std::string_view(stratum.kernel); });
    if (kernel == kernels.end()) throw std::logic_error("a kernel of the strata is missing");
    const AttentionProblem problem = draw_problem(dice, stratum, mask);
    if ((*kernel)->refusal(problem, stratum.direction, (*kernel)->default_options(problem))) {
      throw std::logic_error("a stratum draws what its kernel refuses");
    }
    runs.push_back({*kernel, stratum.direction, problem});
  }
  return runs;
}

std::vector<DrawnLibraryRun> drawn_library_runs(std::uint64_t seed, int count) {
  constexpr int kFirst = 1 << 20;  // of the dice: none of those that draw runs of ours
  std::vector<DrawnLibraryRun> runs;
  for (int i = 0; i < count; ++i) {
    Dice dice(seed, kFirst + i);
    constexpr int kStrata = std::size(kLibraryStrata);
    const LibraryStratum& stratum = kLibraryStrata[i % kStrata];
    const auto kernel = std::ranges::find(library_kernels(), stratum.kernel, &LibraryKernel::name);
    if (kernel == library_kernels().end()) throw std::logic_error("a library of the strata is missing");
    const std::vector<MaskStratum>& masks = kernel->masks(stratum.direction);
    const MaskStratum mask = masks[static_cast<std::size_t>(i % kStrata + i / kStrata) % masks.size()];
    runs.push_back({&*kernel, stratum.direction, draw_library_problem(dice, stratum, *kernel, mask)});
  }
  return runs;
}

std::vector<Rival> rivals_of(const Machine& machine) {
  constexpr std::int64_t kUsual = 32 * kMiB;
  // Least mean |log(simulated / measured DRAM reads)| of 26 ... 44 MiB, over the passes of
  // reports/data/holdout-h200 and of the records of gpu:flash3 that read a tenth more than they must.
  constexpr std::int64_t kBestFit = 30 * kMiB;
  Machine in_step = machine;
  in_step.cta_progress.clear();
  Machine half = machine;
  half.l2_bytes.value /= 2;
  half.l2_effective_bytes.value /= 2;
  std::vector<Rival> rivals = {{machine.name, machine},
                               {"LRU of 32 MiB", lru(machine, kUsual)},
                               {"LRU that fits older records best", lru(machine, kBestFit)},
                               {"two partitions in step", in_step},
                               {"half of the L2", half}};
  for (Rival& rival : rivals) rival.machine.name = rival.name;
  return rivals;
}

std::vector<StudyTask> holdout_study(const Machine& machine, std::uint64_t seed, int count,
                                     std::span<const Kernel* const> kernels) {
  constexpr double kReplays = 26;  // of the rivals; those in two partitions eight times
  std::vector<StudyTask> tasks;
  for (const DrawnRun& drawn : drawn_runs(seed, count, kernels)) {
    tasks.push_back(
        {fmt::format("{} {} {}", drawn.kernel->name, to_string(drawn.direction), describe(drawn.problem)),
         [drawn, &machine] { return predict(drawn, machine); },
         kReplays * replay_seconds(passes_of(drawn, machine), false)});
  }
  for (const DrawnLibraryRun& drawn : drawn_library_runs(seed, count)) {
    tasks.push_back(
        {fmt::format("{} {} {}", drawn.kernel->name, to_string(drawn.direction), describe(drawn.problem)),
         [drawn, &machine] { return predict(drawn, machine); }, kReplays * seconds_of(drawn)});
  }
  return tasks;
}

}  // namespace tilescope
