// SPDX-License-Identifier: Apache-2.0
// Runs one mutant of the GPU kernels after the other and looks whether `verify`'s checks see it on the
// device. Prints a Markdown table; beside each mutant stands what a plain tolerance of 1e-2 would have said,
// and the first divergence that --locate names. Fails if a mutant survives, if locate blames another place
// than the mutant declares, or if a check complains where no mutant is active. Exits with 77 (skipped) where
// there is no device.
// Usage: test_gpu_mutants [--suggest] [--only=NAME] [--every=N [--first=I]] [--stop-when-seen]
// --every=N: each N-th mutant, from the I-th on. --stop-when-seen: no case is run behind the one that catches
// a mutant as declared. (--from, --kept, --tried and --by-tolerance: what the program tells itself.)
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
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
#include "tests/mutants/active_mutant.hpp"
#include "tests/mutants/gpu_mutant_cases.hpp"
#include "tests/mutants/mutant.hpp"

namespace tilescope {

void activate_on_device(int mutant);

namespace {

constexpr double kPlainTolerance = 1e-2;

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

bool plain_tolerance_sees(Case& c, const Verdict& verdict) {
  for (std::size_t i = 0; i < verdict.tensors.size(); ++i) {
    const bool usable =
        c.expected().clean[i].error.within(kPlainTolerance);  // else it would refuse right kernels too
    if (usable && !verdict.tensors[i].error.within(kPlainTolerance)) return true;
  }
  return false;
}

/// What refuses the outputs of the last run: the exact result, or the mirror. Empty: nothing.
std::string refusal_of(Case& c, const Verdict& verdict) {
  const std::string kernel = " of " + std::string(c.kernel->name);
  if (const auto tensor = refused(verdict)) return "exact: " + *tensor + kernel;
  auto& [reference, mirror, clean] = c.expected();
  const TensorSet outputs = reference.take_outputs();
  const auto beside = refused(judge_mirror(reference, outputs, mirror, c.direction, c.kernel->arithmetic));
  return beside ? "mirror: " + *beside + kernel : "";
}

/// What the checks see of the active mutant in one case: guards, the exact result, the mirror.
void look_at(Case& c, Sighting& sighting) {
  const std::string kernel(c.kernel->name);
  Reference& reference = c.expected().reference;
  try {
    reference.run(*c.kernel, c.options, c.direction);
    const Verdict verdict = reference.judge(c.direction);
    sighting.by_plain_tolerance = sighting.by_plain_tolerance || plain_tolerance_sees(c, verdict);
    const std::string refusal = refusal_of(c, verdict);
    if (refusal.empty()) return;
    if (sighting.check.empty()) sighting.check = refusal;
    if (sighting.at.contains(kernel)) return;
    const auto where = locate(reference, *c.kernel, c.options, c.direction);
    if (!where) return;
    if (sighting.first_divergence.empty()) sighting.first_divergence = describe(*where, reference.problem());
    sighting.at[kernel] = place_of(*where);
  } catch (const DeviceError& error) {
    if (sighting.check.empty()) sighting.check = error.what();
  }
}

/// @param mutant  0: none
/// @param stop_when_seen  as declared
Sighting look_for(int mutant, std::vector<Case>& cases, bool stop_when_seen) {
  Sighting sighting;
  for (Case& c : cases) {
    c.expected();  // before the mutant is there
    active_mutant = mutant;
    activate_on_device(mutant);
    look_at(c, sighting);
    active_mutant = 0;
    if (cudaDeviceSynchronize() != cudaSuccess) break;  // nothing runs there any more
    activate_on_device(0);
    if (mutant == 0 || !stop_when_seen) continue;
    if (broken_promise(kMutants[static_cast<std::size_t>(mutant - 1)], sighting.check, sighting.at).empty())
      break;
  }
  return sighting;
}

/// The value of "--name=value" among the arguments; empty: none.
std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).starts_with(name + "=")) return argv[i] + name.size() + 1;
  }
  return {};
}
int count_argument(int argc, char** argv, const std::string& name, int otherwise) {
  const std::string value = argument(argc, argv, name);
  return value.empty() ? otherwise : std::atoi(value.c_str());
}
bool has_argument(int argc, char** argv, const char* name) {
  return std::any_of(argv + 1, argv + argc, [&](const char* given) { return std::strcmp(given, name) == 0; });
}

struct Counts {
  int next = 0;  // mutant, from 0
  int tried = 0, kept = 0, by_plain_tolerance = 0;
};

/// A fault leaves the process without a usable device: the rest goes on in a new one.
void continue_if_faulted(int argc, char** argv, const Counts& counts) {
  if (cudaDeviceSynchronize() == cudaSuccess) return;
  std::fflush(stdout);
  std::vector<std::string> words = {
      argv[0], "--from=" + std::to_string(counts.next), "--tried=" + std::to_string(counts.tried),
      "--kept=" + std::to_string(counts.kept), "--by-tolerance=" + std::to_string(counts.by_plain_tolerance)};
  for (int i = 1; i < argc; ++i) words.emplace_back(argv[i]);  // behind, so that the first of a name counts
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv("/proc/self/exe", arguments.data());
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
  const bool suggests = has_argument(argc, argv, "--suggest"),
             stop_when_seen = has_argument(argc, argv, "--stop-when-seen");
  const std::string only = argument(argc, argv, "--only");
  const int every = count_argument(argc, argv, "--every", 1), mutants = static_cast<int>(kMutants.size());
  Counts counts{count_argument(argc, argv, "--from", count_argument(argc, argv, "--first", 0)),
                count_argument(argc, argv, "--tried", 0), count_argument(argc, argv, "--kept", 0),
                count_argument(argc, argv, "--by-tolerance", 0)};
  std::vector<Case> cases = prepare_cases();
  if (argument(argc, argv, "--from").empty()) {
    if (const Sighting control = look_for(0, cases, false); !control.check.empty()) {
      std::printf("no mutant is active, yet: %s\n", control.check.c_str());
      return 1;
    }
    std::printf("| mutant | what goes wrong | seen by | plain 1e-2 | first divergence | as declared |\n");
    std::printf("|---|---|---|---|---|---|\n");
  }
  while (counts.next < mutants) {
    const int number = counts.next;
    counts.next += every;
    const Mutant& mutant = kMutants[static_cast<std::size_t>(number)];
    if (!only.empty() && mutant.name != only) continue;
    ++counts.tried;
    const Sighting seen = look_for(number + 1, cases, stop_when_seen);
    const std::string broken = broken_promise(mutant, seen.check, seen.at);
    counts.kept += broken.empty();
    counts.by_plain_tolerance += seen.by_plain_tolerance;
    print_row(mutant, seen, broken);
    if (suggests) suggest(mutant, seen);
    continue_if_faulted(argc, argv, counts);
  }
  std::printf(
      "\n%d of %d mutants caught and located as declared; a plain tolerance of 1e-2 on the same runs sees "
      "%d.\n",
      counts.kept, counts.tried, counts.by_plain_tolerance);
  return counts.tried > 0 && counts.kept == counts.tried ? 0 : 1;
}
