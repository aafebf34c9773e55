// SPDX-License-Identifier: Apache-2.0
// Plants every bug of planted_bug.hpp in turn and looks which check sees it. Fails if one survives, or if a
// check complains where no bug is planted. Beside each stands what a plain tolerance of 1e-2 would have said.
#include "cpu_ref/planted_bug.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/judge/verify_cases.hpp"

namespace tilescope {
namespace {

constexpr TileShape kTile{8, 12};
constexpr double kPlainTolerance = 1e-2;

struct NamedBug {
  PlantedBug bug;
  const char* name;
  const char* what;
};
constexpr NamedBug kBugs[] = {
#define TILESCOPE_NAMED_BUG(name, what) {PlantedBug::name, #name, what},
    TILESCOPE_PLANTED_BUG_LIST(TILESCOPE_NAMED_BUG)
#undef TILESCOPE_NAMED_BUG
};

/// Plants a bug as long as it lives.
class Planted {
 public:
  explicit Planted(PlantedBug bug) { active_bug = bug; }
  ~Planted() { active_bug = PlantedBug::none; }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

/// One kernel on one problem, with what it does when nothing is planted.
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
      ProgramOptions options = case_options(c, kernel);
      for (BackwardOrder order : backward_orders(c, kernel)) {
        options.backward = order;
        const Verdict verdict = prepared.reference.judge(kernel, options, c.direction);
        prepared.runs.push_back({&kernel, options, c.direction, verdict.tensors});
      }
    }
  }
  return cases;
}

/// What was seen of one bug.
struct Sighting {
  std::optional<std::string> check;     // the first that saw it, and where
  std::optional<std::string> location;  // what verify says of where it went wrong, if the judge saw it
  bool by_plain_tolerance = false;
};

bool plain_tolerance_sees(const Run& run, const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.tensors.size(); ++i) {
    const bool usable = run.clean[i].error.within(kPlainTolerance);  // else it would refuse right kernels too
    if (usable && !verdict.tensors[i].error.within(kPlainTolerance)) return true;
  }
  return false;
}

/// Runs with the bug, judges without it.
Verdict judge_planted(const NamedBug& bug, Reference& reference, const Run& run, TileObserver* observer) {
  {
    const Planted planted_bug(bug.bug);
    reference.run(*run.kernel, run.options, run.direction, observer);
  }
  return reference.judge(run.direction);
}

/// "dq in pass dkdvdq".
std::optional<std::string> located(const NamedBug& bug, Reference& reference, const Run& run) {
  TileObserver observer;
  judge_planted(bug, reference, run, &observer);
  const auto where = first_divergence(reference, *run.kernel, run.options, run.direction, observer);
  if (!where) return std::nullopt;
  return where->quantity + " in pass " + std::string(to_string(where->pass));
}

Sighting judge_all(const NamedBug& bug, std::vector<Case>& cases) {
  Sighting sighting;
  for (Case& c : cases) {
    for (const Run& run : c.runs) {
      const Verdict verdict = judge_planted(bug, c.reference, run, nullptr);
      if (!sighting.check && !verdict.passed()) {
        const auto wrong = std::find_if(verdict.tensors.begin(), verdict.tensors.end(),
                                        [](const TensorVerdict& tensor) { return !tensor.passed; });
        sighting.location = located(bug, c.reference, run);
        sighting.check =
            "judge: " + std::string(to_string(wrong->tensor)) + " of " + std::string(run.kernel->name);
      }
      sighting.by_plain_tolerance = sighting.by_plain_tolerance || plain_tolerance_sees(run, verdict);
      if (sighting.check && sighting.by_plain_tolerance) return sighting;
    }
  }
  return sighting;
}

/// The program of pass `index` when nothing is planted, or as the bug makes it.
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

/// What the kernel did against its program, with and without the bug, and each tile against fp64.
std::optional<std::string> observe(const NamedBug& bug, Reference& reference, const Run& run) {
  TileObserver observer;
  judge_planted(bug, reference, run, &observer);
  const std::vector<TileProgram> programs = programs_of(reference, run);
  const std::string kernel = " of " + std::string(run.kernel->name);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    if (i == observer.passes.size()) return "accesses: a pass is missing" + kernel;
    const PassLog& log = observer.passes[i];
    if (first_wrong_access(programs[i], log)) return "accesses" + kernel;
    {
      const Planted planted_bug(bug.bug);
      if (first_wrong_access(programs_of(reference, run)[i], log)) return "program" + kernel;
    }
    if (const auto wrong = first_wrong_state(programs[i], log, reference.tensors())) {
      return "tile state: " + wrong->quantity + kernel;
    }
  }
  return std::nullopt;
}

/// The schedule with the bug against the definition of the mask, tile by tile.
bool schedule_is_wrong(const NamedBug& bug, const AttentionProblem& problem) {
  const VisibleBand band = problem.band();
  const auto visible_entries = [&](int m_block, int n_block) {
    int visible = 0;
    for (int i = m_block * kTile.block_m; i < std::min(band.seqlen_q, (m_block + 1) * kTile.block_m); ++i) {
      for (int j = n_block * kTile.block_n; j < std::min(band.seqlen_k, (n_block + 1) * kTile.block_n); ++j) {
        visible += mask_allows(problem, i, j);
      }
    }
    return visible;
  };
  const Planted planted_bug(bug.bug);
  for (int m = 0; m < num_m_blocks(band, kTile); ++m) {
    const TileRange keys = kv_tiles(band, kTile, m);
    for (int n = 0; n < num_n_blocks(band, kTile); ++n) {
      const TileRange queries = q_tiles(band, kTile, n);
      const int visible = visible_entries(m, n);
      const bool full = visible == kTile.block_m * kTile.block_n;
      if ((keys.begin <= n && n < keys.end) != (visible > 0) || keys.full(n) != full) return true;
      if ((queries.begin <= m && m < queries.end) != (visible > 0) || queries.full(m) != full) return true;
    }
  }
  return false;
}

Sighting look_for(const NamedBug& bug, std::vector<Case>& cases) {
  Sighting sighting = judge_all(bug, cases);
  for (Case& c : cases) {
    for (const Run& run : c.runs) {
      if (!sighting.check) sighting.check = observe(bug, c.reference, run);
    }
    if (!sighting.check && schedule_is_wrong(bug, c.reference.problem())) sighting.check = "schedule census";
  }
  return sighting;
}

}  // namespace
}  // namespace tilescope

int main() {
  using namespace tilescope;
  std::vector<Case> cases = prepare_cases();
  if (const Sighting control = look_for({PlantedBug::none, "none", "nothing"}, cases); control.check) {
    std::printf("nothing is planted, yet: %s\n", control.check->c_str());
    return 1;
  }
  int caught = 0, by_plain_tolerance = 0, judged = 0, located_bugs = 0;
  for (const NamedBug& bug : kBugs) {
    const Sighting sighting = look_for(bug, cases);
    caught += sighting.check.has_value();
    by_plain_tolerance += sighting.by_plain_tolerance;
    const bool by_judge = sighting.check && sighting.check->starts_with("judge");
    judged += by_judge;
    located_bugs += by_judge && sighting.location;
    std::printf("%-32s %-69s %-35s %-34s 1e-2: %s\n", bug.name, bug.what,
                sighting.check.value_or("SURVIVES").c_str(),
                sighting.location.value_or(by_judge ? "NOT LOCATED" : "").c_str(),
                sighting.by_plain_tolerance ? "seen" : "missed");
  }
  const int bugs = static_cast<int>(std::size(kBugs));
  std::printf(
      "%d of %d planted bugs caught, %d of them by the judge, which located %d; a plain tolerance of "
      "1e-2 on the same runs sees %d\n",
      caught, bugs, judged, located_bugs, by_plain_tolerance);
  return caught == bugs && located_bugs == judged ? 0 : 1;
}
