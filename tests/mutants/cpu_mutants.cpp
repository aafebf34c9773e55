// SPDX-License-Identifier: Apache-2.0
// Runs one mutant of the CPU side after the other and looks which check sees it. Fails if one survives, if
// locate blames another pass, quantity or tile than the mutant declares, or if a check complains where no
// mutant is active. A mutant that declares where it is seen runs until it was seen there. Beside each stands
// what a plain tolerance of 1e-2 would have said of the same runs. Usage: test_cpu_mutants [--suggest]
// [--only NAME]
//   --suggest  runs everything, and prints what each mutant could declare
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/judge/verify_cases.hpp"
#include "cpu_ref/primitives/amx_matmul.hpp"
#include "cpu_ref/primitives/bf16_matmul.hpp"
#include "tests/mutants/active_mutant.hpp"
#include "tests/mutants/mutant.hpp"

namespace tilescope {
namespace {

constexpr TileShape kTile{8, 12};
constexpr double kPlainTolerance = 1e-2;

/// A mutant is active as long as it lives.
class Active {
 public:
  explicit Active(int mutant) { active_mutant = mutant; }
  ~Active() { active_mutant = 0; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
};

/// One kernel on one problem, with what it does when no mutant is active.
struct Run {
  const Kernel* kernel;
  ProgramOptions options;
  Direction direction;
  std::vector<TensorVerdict> clean;
};

struct Case {
  Reference reference;
  std::vector<Run> runs;
};

std::vector<Case> prepare_cases() {
  std::vector<Case> cases;
  for (const VerifyCase& c : verify_cases(kTile, SweepSize::quick)) {
    Case& prepared = cases.emplace_back(Case{Reference(c.problem, c.inputs, c.direction), {}});
    for (const Kernel& kernel : cpu_kernels()) {
      if (missing_feature(kernel.can, c.problem, Direction::forward)) continue;
      ProgramOptions options = case_options(c, kernel);
      for (BackwardOrder order : backward_orders(c, kernel)) {
        options.backward = order;
        options.dq_start = c.problem.masked() ? DqStart::in_order : DqStart::cleared;
        const Verdict verdict = prepared.reference.judge(kernel, options, c.direction);
        prepared.runs.push_back({&kernel, options, c.direction, verdict.tensors});
      }
    }
  }
  return cases;
}

/// What was seen of one mutant.
struct Sighting {
  std::optional<std::string> check;  // the first that saw it, and where
  std::map<std::string, std::string>
      at;  // "PASS QUANTITY TILE" that locate blames, by kernel that the judge refused
  bool by_plain_tolerance = false;
};

bool plain_tolerance_sees(const Run& run, const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.tensors.size(); ++i) {
    const bool usable = run.clean[i].error.within(kPlainTolerance);  // else it would refuse right kernels too
    if (usable && !verdict.tensors[i].error.within(kPlainTolerance)) return true;
  }
  return false;
}

/// Runs the mutant, judges with the original.
Verdict judge_mutant(int mutant, Reference& reference, const Run& run, TileObserver* observer) {
  {
    const Active active(mutant);
    reference.run(*run.kernel, run.options, run.direction, observer);
  }
  return reference.judge(run.direction);
}

std::string located(int mutant, Reference& reference, const Run& run) {
  TileObserver observer;
  judge_mutant(mutant, reference, run, &observer);
  const auto where = first_divergence(reference, *run.kernel, run.options, run.direction, observer);
  return where ? place_of(*where) : "nothing";
}

/// The kernels that must see a mutant, of the lines "KERNEL PASS QUANTITY TILE" that declare where.
std::set<std::string> declared_kernels(const std::vector<std::string>& at) {
  std::set<std::string> kernels;
  for (const std::string& declared : at) kernels.insert(declared.substr(0, declared.find(' ')));
  return kernels;
}

/// @param wanted  the kernels whose runs are judged, each until one is refused; empty: all, every run
Sighting judge_all(int mutant, const std::set<std::string>& wanted, std::vector<Case>& cases) {
  Sighting sighting;
  for (Case& c : cases) {
    for (const Run& run : c.runs) {
      const std::string kernel(run.kernel->name);
      if (!wanted.empty() && !wanted.contains(kernel)) continue;
      if (sighting.at.contains(kernel) && (!wanted.empty() || sighting.by_plain_tolerance)) continue;
      const Verdict verdict = judge_mutant(mutant, c.reference, run, nullptr);
      if (!verdict.passed() && !sighting.at.contains(kernel)) {
        const auto wrong = std::find_if(verdict.tensors.begin(), verdict.tensors.end(),
                                        [](const TensorVerdict& tensor) { return !tensor.passed; });
        sighting.at[kernel] = located(mutant, c.reference, run);
        if (!sighting.check)
          sighting.check = "judge: " + std::string(to_string(wrong->tensor)) + " of " + kernel;
      }
      sighting.by_plain_tolerance = sighting.by_plain_tolerance || plain_tolerance_sees(run, verdict);
    }
  }
  return sighting;
}

/// The programs of a run as they are, or as the mutant makes them.
std::vector<TileProgram> programs_of(const Reference& reference, const Run& run) {
  std::vector<TileProgram> programs;
  for (Direction direction : {Direction::forward, Direction::backward}) {
    if (direction == Direction::backward && run.direction == Direction::forward) break;
    for (TileProgram& program : run.kernel->programs(direction, reference.problem(), run.options)) {
      programs.push_back(std::move(program));
    }
  }
  return programs;
}

/// What the kernel did against its program, with and without the mutant, and each tile against fp64.
std::optional<std::string> observe(int mutant, Reference& reference, const Run& run) {
  TileObserver observer;
  judge_mutant(mutant, reference, run, &observer);
  const std::vector<TileProgram> programs = programs_of(reference, run);
  const std::string kernel = " of " + std::string(run.kernel->name);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i == observer.passes.size()) return "accesses: a pass is missing" + kernel;
    const PassLog& log = observer.passes[i];
    if (first_wrong_access(programs[i], log)) return "accesses" + kernel;
    {
      const Active active(mutant);
      if (first_wrong_access(programs_of(reference, run)[i], log)) return "program" + kernel;
    }
    if (const auto wrong = first_wrong_state(programs[i], log, reference.tensors())) {
      return "tile state: " + wrong->quantity + kernel;
    }
  }
  return std::nullopt;
}

/// The schedule with the mutant against the definition of the mask, tile by tile.
bool schedule_is_wrong(int mutant, const AttentionProblem& problem, std::int64_t batch) {
  const VisibleBand whole = problem.band();
  const auto visible_entries = [&](int m_block, int n_block) {
    int visible = 0;
    for (int i = m_block * kTile.block_m; i < std::min(whole.seqlen_q, (m_block + 1) * kTile.block_m); ++i) {
      for (int j = n_block * kTile.block_n; j < std::min(whole.seqlen_k, (n_block + 1) * kTile.block_n);
           ++j) {
        visible += mask_allows(problem, batch * problem.heads, i, j);
      }
    }
    return visible;
  };
  const Active active(mutant);
  const Mask mask = problem.mask_of(batch);
  for (int m = 0; m < num_m_blocks(whole, kTile); ++m) {
    const TileRuns keys = mask.kv_tiles(kTile, m);
    for (int n = 0; n < num_n_blocks(whole, kTile); ++n) {
      const TileRuns queries = mask.q_tiles(kTile, n);
      const int visible = visible_entries(m, n);
      const bool full = visible == kTile.block_m * kTile.block_n;
      if (keys.has(n) != (visible > 0) || keys.full(n) != full) return true;
      if (queries.has(m) != (visible > 0) || queries.full(m) != full) return true;
    }
  }
  return false;
}

Sighting look_for(int mutant, const std::set<std::string>& wanted, std::vector<Case>& cases) {
  Sighting sighting = judge_all(mutant, wanted, cases);
  for (Case& c : cases) {
    for (const Run& run : c.runs) {
      if (!sighting.check) sighting.check = observe(mutant, c.reference, run);
    }
    const AttentionProblem& problem = c.reference.problem();
    for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
      if (!sighting.check && schedule_is_wrong(mutant, problem, batch)) sighting.check = "schedule census";
    }
  }
  return sighting;
}

/// What the processor lacks of what is mutated, or null.
const char* missing_instructions(const Mutant& mutant) {
  if (mutant.needs == "avx512_bf16" && !multiplies_bf16_pairs()) return "AVX-512 BF16";
  if (mutant.needs == "amx" && !multiplies_by_amx()) return "AMX";
  return nullptr;
}

void suggest(const Mutant& mutant, const Sighting& seen) {
  std::printf("mutant %s\n", mutant.name.c_str());
  for (const auto& [kernel, where] : seen.at) std::printf("at %s %s\n", kernel.c_str(), where.c_str());
  if (seen.at.empty()) std::printf("by %s\n", seen.check.value_or("nothing").c_str());
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  const std::vector<std::string_view> arguments(argv + 1, argv + argc);
  const auto only = std::find(arguments.begin(), arguments.end(), "--only");
  omp_set_num_threads(1);  // a tile can start with what the one before left: which, threads would decide
  const bool suggests = std::find(arguments.begin(), arguments.end(), "--suggest") != arguments.end();
  std::vector<Case> cases = prepare_cases();
  if (const Sighting control = look_for(0, {}, cases); control.check) {
    std::printf("no mutant is active, yet: %s\n", control.check->c_str());
    return 1;
  }
  int tried = 0, kept = 0, judged = 0, by_plain_tolerance = 0;
  for (int number = 1; number <= static_cast<int>(kMutants.size()); ++number) {
    const Mutant& mutant = kMutants[static_cast<std::size_t>(number - 1)];
    if (only != arguments.end() && only + 1 != arguments.end() && only[1] != mutant.name) continue;
    if (const char* const missing = missing_instructions(mutant)) {
      std::printf("skipped: mutant %s, this processor has no %s\n", mutant.name.c_str(), missing);
      continue;
    }
    const std::set<std::string> wanted = suggests ? std::set<std::string>() : declared_kernels(mutant.at);
    const Sighting seen = look_for(number, wanted, cases);
    const std::string broken = broken_promise(mutant, seen.check.value_or(""), seen.at);
    ++tried;
    kept += broken.empty();
    judged += !seen.at.empty();
    by_plain_tolerance += seen.by_plain_tolerance;
    if (suggests) suggest(mutant, seen);
    std::printf("%-36s %-76s %-36s 1e-2: %-6s %s\n", mutant.name.c_str(), mutant.what.c_str(),
                seen.check.value_or("").c_str(), seen.by_plain_tolerance ? "seen" : "missed", broken.c_str());
    std::fflush(stdout);
  }
  std::printf(
      "%d of %d mutants caught and located as declared, %d of them by the judge; a plain tolerance of 1e-2 "
      "on the same runs sees %d\n",
      kept, tried, judged, by_plain_tolerance);
  return kept == tried && tried > 0 ? 0 : 1;
}
