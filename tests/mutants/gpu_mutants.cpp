// SPDX-License-Identifier: Apache-2.0
// Runs one mutant of the GPU kernels after the other and looks whether `verify`'s checks see it on the
// device. Prints a Markdown table; beside each mutant stands what a plain tolerance of 1e-2 would have said,
// and the first divergence that --locate names. Fails if a mutant survives, if locate blames another place
// than the mutant declares, or if a check complains where no mutant is active. Exits with 77 (skipped) where
// there is no device. Usage: test_gpu_mutants [--suggest] [--from=NUMBER --kept=N --by-tolerance=N]
#include <cuda_runtime.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/mutants/active_mutant.hpp"
#include "tests/mutants/mutant.hpp"

namespace tilescope {

void activate_on_device(int mutant);
/// Whether this program has the kernel's launches.
bool is_mutated(const Kernel& kernel);

namespace {

constexpr double kPlainTolerance = 1e-2;

/// One kernel on one problem, with what its mirror gives and what it gives itself when no mutant is active.
struct Case {
  const Kernel* kernel;
  Direction direction;
  ProgramOptions options;
  Reference reference;
  TensorSet mirror;
  std::vector<TensorVerdict> clean;
};

void add_case(const Kernel& kernel, Direction direction, const AttentionProblem& problem, InputKind inputs,
              std::optional<BackwardOrder> order, std::vector<Case>& cases, int diagonal_slices = 1) {
  ProgramOptions options = kernel.default_options(problem);
  options.diagonal_slices = diagonal_slices;
  if (order) options.backward = *order;
  Case& added = cases.emplace_back(
      Case{&kernel, direction, options, Reference(problem, inputs, direction), TensorSet(problem), {}});
  added.reference.run(*mirror_of(kernel), options, direction);
  added.mirror = added.reference.take_outputs();
  added.clean = added.reference.judge(kernel, options, direction).tensors;
}

/// Several tiles a side, ragged by one row, as the kernel's own tiles cut them; two groups of two query
/// heads.
AttentionProblem ragged_problem(const Kernel& kernel, ElementType dtype, int head_dim) {
  AttentionProblem problem{.batch = 2, .heads = 4, .heads_kv = 2, .head_dim = head_dim, .seed = 7};
  problem.dtype = dtype;
  const TileShape tile = kernel.default_options(problem)[PassName::forward].tile;
  problem.seqlen_q = 2 * tile.block_m - 1;
  problem.seqlen_k = 4 * tile.block_n - 1;
  return problem;
}

/// The same with a window, dropout and a negative scale.
AttentionProblem windowed(const Kernel& kernel, AttentionProblem problem) {
  problem.window_left = kernel.default_options(problem)[PassName::forward].tile.block_n + 2;
  problem.window_right = 3;
  if (kernel.can.forward.has(Feature::dropout)) problem.dropout = 0.25;
  problem.softmax_scale = -0.1;
  return problem;
}

/// The same with padding behind the keys of the second batch entry.
AttentionProblem padded(AttentionProblem problem) {
  problem.key_lengths = {problem.seqlen_k, problem.seqlen_k / 2 + 3};
  return problem;
}

/// Each kernel causal; with all features; with outliers. The other backward orders with all features, that of
/// the tensor cores in bf16 with head dimension 128. With padding, and with tiles cut finer, those that can.
std::vector<Case> prepare_cases() {
  std::vector<Case> cases;
  for (const GpuKernel& rung : gpu_ladder()) {
    const Kernel& kernel = rung.row;
    if (!is_mutated(kernel)) continue;
    const bool simt = kernel.name == std::string_view("gpu:flash2-simt");
    const AttentionProblem plain = ragged_problem(kernel, simt ? ElementType::fp32 : ElementType::fp16, 64);
    AttentionProblem causal = plain;
    causal.causal = true;
    const bool ordered = kernel.algorithm == Algorithm::flash2;
    const auto fused = ordered ? std::optional(BackwardOrder::fused) : std::nullopt;
    add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases);
    add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, fused, cases);
    add_case(kernel, Direction::backward, plain, InputKind::outlier, fused, cases);
    if (simt) {
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, BackwardOrder::rows,
               cases);
      add_case(kernel, Direction::backward, windowed(kernel, plain), InputKind::normal, BackwardOrder::split,
               cases);
    } else if (kernel.name == std::string_view("gpu:flash3")) {
      add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::fp16, 256)),
               InputKind::normal, fused, cases);
      add_case(kernel, Direction::forward, ragged_problem(kernel, ElementType::fp8e4m3, 128),
               InputKind::normal, std::nullopt, cases);
      // More items than CTAs, in half of which rows see no key.
      AttentionProblem many = causal;
      many.batch = 50;
      many.seqlen_k = 40;
      add_case(kernel, Direction::forward, many, InputKind::normal, std::nullopt, cases);
    } else if (ordered) {
      add_case(kernel, Direction::backward, windowed(kernel, ragged_problem(kernel, ElementType::bf16, 128)),
               InputKind::normal, BackwardOrder::split, cases);
    }
    if (ordered && kernel.can.forward.has(Feature::key_padding)) {
      add_case(kernel, Direction::backward, padded(causal), InputKind::normal, fused, cases);
    }
    if (kernel.smallest_part > 0) {
      constexpr int kSlices = 4;
      add_case(kernel, Direction::backward, causal, InputKind::normal, fused, cases, kSlices);
    }
  }
  const Kernel& split_k = find_gpu_kernel("gpu:split-k").row;
  if (!is_mutated(split_k)) return cases;
  add_case(split_k, Direction::forward, ragged_problem(split_k, ElementType::fp16, 64), InputKind::normal,
           std::nullopt, cases);
  return cases;
}

struct Sighting {
  std::string check;  // the first that saw the mutant, and where; empty: none
  std::map<std::string, std::string>
      at;                        // "PASS QUANTITY TILE" that locate blames, by kernel that was refused
  std::string first_divergence;  // in words, of the first such kernel
  bool by_plain_tolerance = false;
};

/// The first tensor that a verdict refuses.
std::optional<std::string> refused(const Verdict& verdict) {
  for (const TensorVerdict& tensor : verdict.tensors) {
    if (!tensor.passed) return std::string(to_string(tensor.tensor));
  }
  return std::nullopt;
}

bool plain_tolerance_sees(const Case& c, const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.tensors.size(); ++i) {
    const bool usable = c.clean[i].error.within(kPlainTolerance);  // else it would refuse right kernels too
    if (usable && !verdict.tensors[i].error.within(kPlainTolerance)) return true;
  }
  return false;
}

/// What refuses the outputs of the last run: the exact result, or the mirror. Empty: nothing.
std::string refusal_of(Case& c, const Verdict& verdict) {
  const std::string kernel = " of " + std::string(c.kernel->name);
  if (const auto tensor = refused(verdict)) return "exact: " + *tensor + kernel;
  const TensorSet outputs = c.reference.take_outputs();
  const auto beside =
      refused(judge_mirror(c.reference, outputs, c.mirror, c.direction, c.kernel->arithmetic));
  return beside ? "mirror: " + *beside + kernel : "";
}

/// What the checks see of the active mutant in one case: guards, the exact result, the mirror.
void look_at(Case& c, Sighting& sighting) {
  const std::string kernel(c.kernel->name);
  try {
    c.reference.run(*c.kernel, c.options, c.direction);
    const Verdict verdict = c.reference.judge(c.direction);
    sighting.by_plain_tolerance = sighting.by_plain_tolerance || plain_tolerance_sees(c, verdict);
    const std::string refusal = refusal_of(c, verdict);
    if (refusal.empty()) return;
    if (sighting.check.empty()) sighting.check = refusal;
    if (sighting.at.contains(kernel)) return;
    const auto where = locate(c.reference, *c.kernel, c.options, c.direction);
    if (!where) return;
    if (sighting.first_divergence.empty())
      sighting.first_divergence = describe(*where, c.reference.problem());
    sighting.at[kernel] = place_of(*where);
  } catch (const DeviceError& error) {
    if (sighting.check.empty()) sighting.check = error.what();
  }
}

/// @param mutant  0: none
Sighting look_for(int mutant, std::vector<Case>& cases) {
  active_mutant = mutant;
  activate_on_device(mutant);
  Sighting sighting;
  for (Case& c : cases) look_at(c, sighting);
  active_mutant = 0;
  return sighting;
}

/// The count in "--name=count" among the arguments, or 0.
int count_argument(int argc, char** argv, const char* name) {
  const std::size_t length = std::strlen(name);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], name, length) == 0 && argv[i][length] == '=') {
      return std::atoi(argv[i] + length + 1);
    }
  }
  return 0;
}

struct Counts {
  int tried = 0, kept = 0, by_plain_tolerance = 0;
};

/// A fault leaves the process without a usable device: the rest goes on in a new one.
void continue_if_faulted(char** argv, const Counts& counts, bool suggests) {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  std::fflush(stdout);
  const auto argument = [](const char* name, int value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  const std::string from = argument("--from", counts.tried), kept = argument("--kept", counts.kept),
                    seen = argument("--by-tolerance", counts.by_plain_tolerance);
  execl("/proc/self/exe", argv[0], from.c_str(), kept.c_str(), seen.c_str(), suggests ? "--suggest" : nullptr,
        nullptr);
}

void print_row(const Mutant& mutant, const Sighting& seen, const std::string& broken) {
  std::printf(
      "| %s | %s | %s | %s | %s | %s |\n", mutant.name.c_str(), mutant.what.c_str(), seen.check.c_str(),
      seen.by_plain_tolerance ? "seen" : "missed",
      seen.first_divergence.substr(0, seen.first_divergence.find(": ", seen.first_divergence.find("block")))
          .c_str(),
      broken.empty() ? "yes" : ("**" + broken + "**").c_str());
}

void suggest(const Mutant& mutant, const Sighting& seen) {
  std::fprintf(stderr, "mutant %s\n", mutant.name.c_str());
  for (const auto& [kernel, where] : seen.at)
    std::fprintf(stderr, "at %s %s\n", kernel.c_str(), where.c_str());
  if (seen.at.empty()) std::fprintf(stderr, "by %s\n", seen.check.c_str());
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  if (const auto lack = device_lack()) {
    std::printf("skipped: %s\n", lack->c_str());
    return 77;
  }
  bool suggests = false;
  for (int i = 1; i < argc; ++i) suggests = suggests || std::strcmp(argv[i], "--suggest") == 0;
  std::vector<Case> cases = prepare_cases();
  if (const Sighting control = look_for(0, cases); !control.check.empty()) {
    std::printf("no mutant is active, yet: %s\n", control.check.c_str());
    return 1;
  }
  Counts counts{count_argument(argc, argv, "--from"), count_argument(argc, argv, "--kept"),
                count_argument(argc, argv, "--by-tolerance")};
  if (counts.tried == 0) {
    std::printf("| mutant | what goes wrong | seen by | plain 1e-2 | first divergence | as declared |\n");
    std::printf("|---|---|---|---|---|---|\n");
  }
  const int mutants = static_cast<int>(kMutants.size());
  while (counts.tried < mutants) {
    const Mutant& mutant = kMutants[static_cast<std::size_t>(counts.tried++)];
    const Sighting seen = look_for(counts.tried, cases);
    const std::string broken = broken_promise(mutant, seen.check, seen.at);
    counts.kept += broken.empty();
    counts.by_plain_tolerance += seen.by_plain_tolerance;
    print_row(mutant, seen, broken);
    if (suggests) suggest(mutant, seen);
    continue_if_faulted(argv, counts, suggests);
  }
  std::printf(
      "\n%d of %d mutants caught and located as declared; a plain tolerance of 1e-2 on the same runs sees "
      "%d.\n",
      counts.kept, mutants, counts.by_plain_tolerance);
  return counts.kept == mutants ? 0 : 1;
}
