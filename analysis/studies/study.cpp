// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/study.hpp"
#include "analysis/studies/holdout.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "analysis/model/counts/what_ran.hpp"
#include "analysis/model/replay/replay_cost.hpp"
#include "analysis/model/replay/simulate_run.hpp"
#include "common/nearest_names.hpp"
#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/judge/exact_attention.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

/// The paper does not print its shape. This one takes seconds in fp64.
constexpr AttentionProblem kErrorProblem{
    .heads = 4, .heads_kv = 4, .seqlen_q = 2048, .seqlen_k = 2048, .head_dim = 128};

TensorSet outlier_inputs(ElementType dtype) {
  AttentionProblem problem = kErrorProblem;
  problem.dtype = dtype;
  TensorSet inputs(problem);
  fill_random_inputs(inputs, Direction::forward, InputKind::outlier);
  return inputs;
}

TensorErrorRecord error_against(const Tensor& actual, std::span<const double> expected) {
  const ErrorReport report = compare(actual, expected);
  TensorErrorRecord error;
  error.max_abs = report.max_abs;
  error.rmse = report.rmse;
  error.max_ulp = static_cast<double>(report.max_ulp);
  error.non_finite = report.non_finite;
  return error;
}

std::vector<RunEntry> errors_in(ElementType dtype, const std::vector<const Kernel*>& kernels,
                                const ExactAttention& unrounded) {
  TensorSet tensors = outlier_inputs(dtype);
  const ExactAttention exact = exact_attention(tensors, Direction::forward);
  std::vector<RunEntry> runs;
  const auto add = [&](const Kernel& kernel, const ProgramOptions& options) {
    kernel.run(options, Direction::forward, tensors, nullptr);
    RunEntry run = entry_of(kernel, tensors.problem());
    run.inputs = InputKind::outlier;
    if (options.fp8_sums != Fp8Sums::fp32) {
      PassRecord& pass = run.passes.emplace_back();
      pass.name = to_string(PassName::forward);
      pass.tile = options[PassName::forward].tile;
      pass.choices.fp8_sums = to_string(options.fp8_sums);
    }
    const Tensor& out = tensors[TensorName::out];
    run.error.emplace(kErrorOfKernel, error_against(out, exact.out));
    run.error.emplace(kErrorWithInputRounding, error_against(out, unrounded.out));
    runs.push_back(std::move(run));
  };
  for (const Kernel* kernel : kernels) {
    ProgramOptions options = kernel->default_options(tensors.problem());
    if (kernel->refusal(tensors.problem(), Direction::forward, options)) continue;
    if (!is_fp8(dtype)) add(*kernel, options);
    for (const Fp8Sums sums : kernel->fp8_sums) {
      options.fp8_sums = sums;
      if (is_fp8(dtype)) add(*kernel, options);
    }
  }
  return runs;
}

}  // namespace

/// Exact attention on the CPU, and the kernels.
constexpr double kSecondsAType = 4;

std::vector<StudyTask> error_study_of(const std::vector<const Kernel*>& kernels) {
  const auto unrounded = std::make_shared<std::optional<ExactAttention>>();  // shared by the tasks
  std::vector<StudyTask> tasks;
  for (const ElementType dtype : kElementTypes) {
    tasks.push_back({std::string(to_string(dtype)),
                     [dtype, unrounded, kernels] {
                       if (!*unrounded) {
                         *unrounded = exact_attention(outlier_inputs(ElementType::fp32), Direction::forward);
                       }
                       return errors_in(dtype, kernels, **unrounded);
                     },
                     kSecondsAType});
  }
  return tasks;
}

std::vector<StudyTask> error_study(const Machine&) {
  std::vector<const Kernel*> kernels;
  for (const Kernel& kernel : cpu_kernels()) kernels.push_back(&kernel);
  return error_study_of(kernels);
}

namespace {

const Kernel& cpu_kernel(Algorithm algorithm) {
  for (const Kernel& kernel : cpu_kernels()) {
    if (kernel.algorithm == algorithm) return kernel;
  }
  throw std::logic_error("no CPU kernel executes this algorithm");
}

const AttentionProblem& preset_problem(std::string_view name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset.problem;
  }
  throw std::logic_error("no such preset");
}

constexpr Direction kBackward[] = {Direction::backward};
constexpr Direction kBoth[] = {Direction::forward, Direction::backward};

/// The tile of FlashAttention-2's and cuDNN's forward kernels at head_dim 128. flash1 streams two more
/// tensors, so that only half of its q tile fits a CTA's shared memory; its bytes depend on block_n alone.
TileShape usual_tile(Algorithm algorithm) {
  return algorithm == Algorithm::flash1 ? TileShape{64, 128} : TileShape{128, 128};
}

/// Collects runs to be simulated.
struct Simulations {
  const Machine& machine;
  bool keep_curves = false;  // DRAM bytes at every L2 size, not only the machine's
  std::vector<StudyTask> tasks = {};

  void add(Algorithm algorithm, const AttentionProblem& problem, std::span<const Direction> directions,
           TileShape tile, BackwardOrder backward = BackwardOrder::fused) {
    const Kernel& kernel = cpu_kernel(algorithm);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    options.backward = backward;
    std::vector<PlannedPass> passes = plan_passes(kernel, problem, directions, options, machine);
    const double seconds = replay_seconds(passes, keep_curves);
    tasks.push_back(
        {fmt::format("{} {} tile {}x{}", kernel.name, describe(problem), tile.block_m, tile.block_n),
         [passes = std::move(passes), problem, &kernel, &machine = machine, keep = keep_curves] {
           return std::vector<RunEntry>{simulate_run(kernel, problem, passes, machine, {.l2_curve = keep})};
         },
         seconds});
  }

  /// FlashAttention-2 in both directions, counted and not replayed, with tiles cut finer where the mask does.
  void add_cut(const AttentionProblem& problem, int slices) {
    const Kernel& kernel = cpu_kernel(Algorithm::flash2);
    ProgramOptions options = ProgramOptions::with_tile(usual_tile(Algorithm::flash2));
    options.backward = BackwardOrder::fused;
    options.diagonal_slices = slices;
    std::vector<PlannedPass> passes = plan_passes(kernel, problem, kBoth, options, machine);
    tasks.push_back({fmt::format("{} {}, {} slices", kernel.name, describe(problem), slices),
                     [passes = std::move(passes), problem, &kernel, &machine = machine] {
                       return std::vector<RunEntry>{
                           simulate_run(kernel, problem, passes, machine, {.replay = false})};
                     },
                     0});
  }
};

std::vector<StudyTask> passes_study(const Machine& machine) {
  Simulations simulations{machine, true};
  AttentionProblem long_context = preset_problem("long-128k");
  long_context.heads = long_context.heads_kv = 2;  // as many tokens times heads as fa2-16k has
  for (const AttentionProblem& problem : {preset_problem("fa2-16k"), long_context}) {
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      simulations.add(algorithm, problem, kBoth, usual_tile(algorithm));
    }
    const TileShape tile = usual_tile(Algorithm::flash2);
    simulations.add(Algorithm::flash2, problem, kBackward, tile, BackwardOrder::split);
    simulations.add(Algorithm::flash2, problem, kBackward, tile, BackwardOrder::q_outer);
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> seqlen_study(const Machine& machine) {
  Simulations simulations{machine};
  constexpr std::int64_t kShortest = 512, kLongest = 131072;
  constexpr std::int64_t kLongestComparison = 65536;  // where S of the standard algorithm takes 137 GB
  for (std::int64_t seqlen = kShortest; seqlen <= kLongest; seqlen *= 2) {
    AttentionProblem problem = preset_problem("long-128k");
    problem.seqlen_q = problem.seqlen_k = seqlen;
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      if (algorithm != Algorithm::flash2 && seqlen > kLongestComparison) continue;
      simulations.add(algorithm, problem, kBoth, usual_tile(algorithm));
    }
  }
  return std::move(simulations.tasks);
}

std::vector<StudyTask> block_size_study(const Machine& machine) {
  Simulations simulations{machine};
  for (int block = 16; block <= 256; block *= 2) {
    for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
      simulations.add(algorithm, preset_problem("fa2-16k"), kBoth, TileShape{block, block});
    }
  }
  return std::move(simulations.tasks);
}

/// Forward at the block sizes of the middle panel, and both directions at what the left panel used.
std::vector<StudyTask> figure2_study(const Machine& machine) {
  Simulations simulations{machine};
  const AttentionProblem& problem = preset_problem("gpt2-medium");
  // One tile as large as the matrices: each operand of a product is read once, as Algorithms 0 and 3 count.
  const int whole = static_cast<int>(problem.seqlen_q);
  simulations.add(Algorithm::standard, problem, kBoth, TileShape{whole, whole});
  const int block_m = static_cast<int>(problem.head_dim);  // Algorithm 1, line 1: Br = min(Bc, d)
  for (const int block_n : {64, 128, 256, 512}) {
    const std::span<const Direction> both = kBoth;
    simulations.add(Algorithm::flash1, problem, both.first(block_n == 256 ? 2 : 1),
                    TileShape{block_m, block_n});
  }
  return std::move(simulations.tasks);
}

/// By formula alone: a causal mask, on whose diagonal tiles end, and a window whose edge lies inside tiles.
std::vector<StudyTask> diagonal_study(const Machine& machine) {
  Simulations simulations{machine};
  for (const std::int64_t window : {-1, 300}) {
    for (std::int64_t seqlen = 512; seqlen <= 16384; seqlen *= 2) {
      AttentionProblem problem = preset_problem("long-128k");
      problem.seqlen_q = problem.seqlen_k = seqlen;
      problem.causal = true;
      problem.window_left = window;
      for (const int slices : {1, 2, 4, 8}) simulations.add_cut(problem, slices);
    }
  }
  return std::move(simulations.tasks);
}

constexpr Study kStudies[] = {
    {"passes", "every pass of every algorithm at N = 4K and 128K, with DRAM bytes at every L2 size", "h200",
     passes_study},
    {"seqlen", "bytes against sequence length, N = 512 ... 128K", "h200", seqlen_study},
    {"block-size", "bytes against block size, 16 ... 256 rows", "h200", block_size_study},
    {"paper-figure2", "FlashAttention's Figure 2: GPT-2 medium on an A100", "a100-40gb", figure2_study},
    {"diagonal", "what finer parts of tiles on the diagonal save, N = 512 ... 16K, by formula", "h200",
     diagonal_study},
    {"paper-errors", "FlashAttention-3's error experiment, on this machine", "", error_study, error_study_of},
    {"holdout",
     "what is said of passes that --seed draws before they are measured, by the model and its rivals", "h200",
     nullptr, nullptr, holdout_study},
};

}  // namespace

std::span<const Study> studies() { return kStudies; }

const Study& find_study(std::string_view name) {
  std::vector<std::string> names;
  for (const Study& study : kStudies) {
    if (study.name == name) return study;
    names.emplace_back(study.name);
  }
  throw unknown_name("study", name, names);
}

}  // namespace tilescope
