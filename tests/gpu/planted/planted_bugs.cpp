// SPDX-License-Identifier: Apache-2.0
// Plants every bug of gpu/planted_bug.cuh in turn and looks whether `verify`'s checks see it on the device.
// Prints a Markdown table; beside each bug stands what a plain tolerance of 1e-2 would have said, and the
// first divergent tile that --locate names. Fails if a bug survives, or if a check complains where none is
// planted. Exits with 77 (skipped) where there is no device. Usage: test_gpu_planted_bugs [--from=NUMBER
// --caught=N --by-tolerance=N --located=N]
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/equivalence.hpp"
#include "cpu_ref/judge/locate.hpp"
#include "gpu/launch/device.hpp"
#include "gpu/planted_bug.cuh"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {

/// Makes the kernels of this program misbehave in this way from the next launch on.
void plant_gpu_bug(int bug);

namespace {

constexpr double kPlainTolerance = 1e-2;

struct NamedBug {
  GpuBug bug;
  std::string name, what;
};
const std::vector<NamedBug> kBugs = {
#define TILESCOPE_NAMED_BUG(name, what) {GpuBug::name, #name, what},
    TILESCOPE_GPU_PLANTED_BUG_LIST(TILESCOPE_NAMED_BUG)
#undef TILESCOPE_NAMED_BUG
};

const Kernel& mirror_of(const Kernel& kernel) {
  for (const Kernel& mirror : cpu_kernels()) {
    if (mirror.algorithm == kernel.algorithm) return mirror;
  }
  throw BadInput("kernel", std::string(kernel.name), "has no CPU mirror");
}

/// One kernel on one problem, with what its mirror gives and what it gives itself when nothing is planted.
struct Case {
  const Kernel* kernel;
  ProgramOptions options;
  Reference reference;
  TensorSet mirror;
  std::vector<TensorVerdict> clean;
};

/// Several tiles a side, ragged by one row, as each kernel's own tiles cut them: causal; a window with
/// dropout; neither, with outliers.
std::vector<Case> prepare_cases() {
  std::vector<Case> cases;
  for (const GpuKernel& rung : gpu_ladder()) {
    AttentionProblem problem{.batch = 2, .heads = 4, .heads_kv = 2, .head_dim = 64, .seed = 7};
    problem.dtype = rung.reason(problem, Direction::forward, rung.row.default_options(problem))
                        ? ElementType::fp16
                        : ElementType::fp32;
    if (rung.row.algorithm != Algorithm::flash2) problem.dtype = ElementType::fp16;
    const TileShape tile = rung.row.default_options(problem).forward_tile;
    problem.seqlen_q = 2 * tile.block_m - 1;
    problem.seqlen_k = 4 * tile.block_n - 1;
    for (const auto& [causal, left, dropout, inputs] : {std::tuple{true, -1, 0.0, InputKind::normal},
                                                        {false, tile.block_n + 2, 0.25, InputKind::normal},
                                                        {false, -1, 0.0, InputKind::outlier}}) {
      problem.causal = causal;
      problem.window_left = left;
      problem.window_right = left < 0 ? -1 : 3;
      problem.dropout = dropout;
      const ProgramOptions options = rung.row.default_options(problem);
      Case& added = cases.emplace_back(
          Case{&rung.row, options, Reference(problem, inputs, Direction::backward), TensorSet(problem), {}});
      added.reference.run(mirror_of(rung.row), options, Direction::backward);
      added.mirror = added.reference.take_outputs();
      added.clean = added.reference.judge(rung.row, options, Direction::backward).tensors;
    }
  }
  return cases;
}

struct Sighting {
  std::string check;  // the first that saw the bug, and where; empty: none
  bool by_plain_tolerance = false;
  std::string located;
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

/// What the checks see of the bug in one case: guards, the exact result, the mirror.
Sighting look_at(const NamedBug& bug, Case& c, bool wants_location) {
  Sighting sighting;
  const std::string kernel = " of " + std::string(c.kernel->name);
  plant_gpu_bug(static_cast<int>(bug.bug));
  try {
    c.reference.run(*c.kernel, c.options, Direction::backward);
  } catch (const DeviceError& error) {
    sighting.check = error.what();
    return sighting;
  }
  const Verdict verdict = c.reference.judge(Direction::backward);
  sighting.by_plain_tolerance = plain_tolerance_sees(c, verdict);
  if (const auto tensor = refused(verdict)) {
    sighting.check = "exact: " + *tensor + kernel;
  } else {
    const TensorSet outputs = c.reference.take_outputs();
    if (const auto beside = refused(judge_mirror(c.reference, outputs, c.mirror, Direction::backward))) {
      sighting.check = "mirror: " + *beside + kernel;
    }
  }
  if (sighting.check.empty() || !wants_location) return sighting;
  const auto where = locate(c.reference, *c.kernel, c.options, Direction::backward);
  if (where) {
    const std::string sentence = describe(*where, c.reference.problem());
    sighting.located = sentence.substr(0, sentence.find(": ", sentence.find("block")));
  }
  return sighting;
}

Sighting look_for(const NamedBug& bug, std::vector<Case>& cases) {
  Sighting sighting;
  for (Case& c : cases) {
    const Sighting seen = look_at(bug, c, sighting.located.empty());
    sighting.by_plain_tolerance = sighting.by_plain_tolerance || seen.by_plain_tolerance;
    if (sighting.check.empty()) sighting.check = seen.check;
    if (sighting.located.empty()) sighting.located = seen.located;
  }
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
  int next = 0, caught = 0, by_plain_tolerance = 0, located = 0;
};

/// A fault leaves the process without a usable device: the rest goes on in a new one.
void continue_if_faulted(char** argv, const Counts& counts) {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  std::fflush(stdout);
  const auto argument = [](const char* name, int value) {
    return std::string(name) + "=" + std::to_string(value);
  };
  const std::string from = argument("--from", counts.next), caught = argument("--caught", counts.caught),
                    seen = argument("--by-tolerance", counts.by_plain_tolerance),
                    located = argument("--located", counts.located);
  execl("/proc/self/exe", argv[0], from.c_str(), caught.c_str(), seen.c_str(), located.c_str(), nullptr);
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  if (const auto lack = device_lack()) {
    std::printf("skipped: %s\n", lack->c_str());
    return 77;
  }
  std::vector<Case> cases = prepare_cases();
  if (const Sighting control = look_for({GpuBug::none, "", ""}, cases); !control.check.empty()) {
    std::printf("nothing is planted, yet: %s\n", control.check.c_str());
    return 1;
  }
  Counts counts{count_argument(argc, argv, "--from"), count_argument(argc, argv, "--caught"),
                count_argument(argc, argv, "--by-tolerance"), count_argument(argc, argv, "--located")};
  if (counts.next == 0) {
    std::printf(
        "| bug | what goes wrong | seen by | plain 1e-2 | first divergence |\n|---|---|---|---|---|\n");
  }
  while (counts.next < static_cast<int>(kBugs.size())) {
    const NamedBug& bug = kBugs[static_cast<std::size_t>(counts.next++)];
    const Sighting sighting = look_for(bug, cases);
    counts.caught += !sighting.check.empty();
    counts.by_plain_tolerance += sighting.by_plain_tolerance;
    counts.located += !sighting.located.empty();
    std::printf("| %s | %s | %s | %s | %s |\n", bug.name.c_str(), bug.what.c_str(),
                sighting.check.empty() ? "**nothing**" : sighting.check.c_str(),
                sighting.by_plain_tolerance ? "seen" : "missed", sighting.located.c_str());
    continue_if_faulted(argv, counts);
  }
  const int bugs = static_cast<int>(kBugs.size());
  std::printf(
      "\n%d of %d planted bugs caught, %d of them located; a plain tolerance of 1e-2 on the same runs sees "
      "%d.\n",
      counts.caught, bugs, counts.located, counts.by_plain_tolerance);
  return counts.caught == bugs ? 0 : 1;
}
