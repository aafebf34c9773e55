// SPDX-License-Identifier: Apache-2.0
// Bytes at SM<->L2 that a device counts are those of the closed form and of the causes that have counters of
// their own, to 0.02 % of reads and 0.01 % of writes and reductions, for every GPU kernel, at lengths and
// head dimensions that are drawn anew in each run. Exits with 77 (skipped) without a device that may be
// counted on. Usage: test_drawn_bytes [doctest options] [--seed=S] [--problems=N]
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <string>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/counts/counted_causes.hpp"
#include "analysis/model/counts/measured_bytes.hpp"
#include "analysis/records/run_record.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr double kMostOfReads = 0.0002, kMostOfWrites = 0.0001;
constexpr int kExitLacks = 3;

struct {
  unsigned seed = 0;
  int problems = 2;  // of each kernel and direction
} options;

/// Long enough for what a launch reads beside its tensors, parameters and code, to be nothing beside them.
AttentionProblem draw(testing::ProblemGenerator& random, const Kernel& kernel, Direction direction) {
  constexpr int kMostTries = 10000;
  for (int i = 0; i < kMostTries; ++i) {
    AttentionProblem problem;
    problem.heads_kv = random.between(4, 8);
    problem.heads = problem.heads_kv * random.between(1, 3);
    problem.seqlen_q = random.between(700, 3000);
    problem.seqlen_k = random.chance(0.5) ? problem.seqlen_q : random.between(700, 3000);
    problem.head_dim = 8 * random.between(1, 32);
    problem.dtype = kElementTypes[random.between(0, 2)];
    problem.causal = random.chance(0.5);
    if (!problem.causal && random.chance(0.3)) problem.window_left = random.between(100, 900);
    if (direction == Direction::forward && random.chance(0.3))
      problem.page_size = std::int64_t{16} << random.between(0, 4);
    if (kernel.can.of(direction).has(Feature::shared_kv)) {
      problem.head_dim = 8 * random.between(1, 72);
      problem.head_dim_v = std::min<std::int64_t>(problem.head_dim, 8 * random.between(1, 64));
      problem.shared_kv = true;
    }
    if (!kernel.refusal(problem, direction, kernel.default_options(problem))) return problem;
  }
  FAIL("no problem that the kernel takes");
  return {};
}

std::vector<std::string> arguments_of(const Kernel& kernel, const AttentionProblem& p, Direction direction,
                                      const std::string& record) {
  std::vector<std::string> words = {"profile",
                                    "--kernel",
                                    std::string(kernel.name),
                                    "--heads",
                                    std::to_string(p.heads),
                                    "--heads-kv",
                                    std::to_string(p.heads_kv),
                                    "--seqlen-q",
                                    std::to_string(p.seqlen_q),
                                    "--seqlen-k",
                                    std::to_string(p.seqlen_k),
                                    "--head-dim",
                                    std::to_string(p.head_dim),
                                    "--dtype",
                                    std::string(to_string(p.dtype)),
                                    "--pass",
                                    direction == Direction::forward ? "fwd" : "bwd",
                                    "--metrics",
                                    "traffic,causes",
                                    "--closed-form",
                                    "--no-verify",
                                    "--quiet",
                                    "--json",
                                    record};
  if (p.shared_kv) words.insert(words.end(), {"--shared-kv", "--head-dim-v", std::to_string(p.value_dim())});
  if (p.causal) words.emplace_back("--causal");
  if (p.page_size > 0) words.insert(words.end(), {"--page-size", std::to_string(p.page_size)});
  if (p.window_left >= 0) words.insert(words.end(), {"--window", std::to_string(p.window_left) + ",0"});
  return words;
}

/// What no cause explains of one side, as a share of what was measured.
double left_over(std::int64_t measured, std::int64_t closed_form, std::int64_t causes) {
  return static_cast<double>(measured - closed_form - causes) /
         static_cast<double>(std::max<std::int64_t>(1, measured));
}

void check_pass(const PassRecord& pass) {
  CAPTURE(pass.name);
  REQUIRE(pass.closed_form);
  REQUIRE(pass.measured);
  REQUIRE(pass.measured->sm_l2_read_bytes);
  REQUIRE(pass.measured->sm_l2_write_bytes);
  const auto metrics = pass_metrics(pass);
  const auto causes = counted_causes(metrics, *pass.closed_form);
  const auto served = metrics.find("l1_load_hit_bytes");
  const std::int64_t by_l1 = served == metrics.end() ? 0 : static_cast<std::int64_t>(served->second);
  const double read = left_over(*pass.measured->sm_l2_read_bytes, pass.closed_form->sm_l2_read_bytes,
                                sum_of(causes, true) - by_l1);
  const double written = left_over(*pass.measured->sm_l2_write_bytes, pass.closed_form->sm_l2_write_bytes,
                                   sum_of(causes, false));
  // Kv tiles that wait for each other look at their flags again and again, which the closed form has once.
  const bool waits = pass.choices.backward == BackwardOrder::ordered || pass.choices.dq_start;
  CAPTURE(read);
  CAPTURE(written);
  CHECK(read >= -kMostOfReads);
  CHECK((waits || read <= kMostOfReads));
  CHECK(std::abs(written) <= kMostOfWrites);
  if (waits && read > kMostOfReads)
    MESSAGE(pass.name, ": looks at flags are ", 100 * read, " % of its reads");
}

TEST_CASE("measured SM<->L2 bytes are the closed form's and the counted causes', on drawn problems") {
  int passes = 0;
  for (const Kernel& kernel : gpu_kernels()) {
    if (!is_runnable(kernel)) continue;
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      if (!kernel.can.of(direction).has(Feature::fp32) && !kernel.can.of(direction).has(Feature::fp16))
        continue;
      for (int i = 0; i < options.problems; ++i) {
        testing::ProblemGenerator random(options.seed + static_cast<unsigned>(i));
        const AttentionProblem problem = draw(random, kernel, direction);
        CAPTURE(options.seed);
        CAPTURE(kernel.name);
        CAPTURE(describe(problem));
        const testing::TemporaryFolder folder;
        const std::string path = (folder.path() / "record.json").string();
        const auto result = testing::run_program(arguments_of(kernel, problem, direction, path));
        CAPTURE(result.err);
        REQUIRE(result.exit_code == 0);
        for (const RunEntry& run : read_run_record(path).runs) {
          for (const PassRecord& pass : run.passes) {
            check_pass(pass);
            ++passes;
          }
        }
      }
    }
  }
  CHECK(passes > 0);
  MESSAGE(passes, " passes, seed ", options.seed);
}

int count_of(int argc, char** argv, const std::string& name, unsigned otherwise) {
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]).starts_with(name + "=")) return std::stoi(argv[i] + name.size() + 1);
  }
  return static_cast<int>(otherwise);
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  using namespace tilescope;
  const auto self_test = testing::run_program({"profile", "--self-test", "--quiet"});
  if (self_test.exit_code == kExitLacks) {
    std::printf("skipped: %s\n", self_test.err.c_str());
    return 77;
  }
  options.seed = static_cast<unsigned>(count_of(argc, argv, "--seed", std::random_device()() % 1000000));
  options.problems = count_of(argc, argv, "--problems", static_cast<unsigned>(options.problems));
  std::printf("drawn bytes: seed %u\n", options.seed);
  doctest::Context context(argc, argv);
  return context.run();
}
