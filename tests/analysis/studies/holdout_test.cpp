// SPDX-License-Identifier: Apache-2.0
#include "analysis/studies/holdout.hpp"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

TEST_CASE("a seed draws the same runs, and each beginning of the list has every stratum") {
  const std::vector<const Kernel*> kernels = all_kernels();
  const std::vector<DrawnRun> runs = drawn_runs(7, 40, kernels), again = drawn_runs(7, 8, kernels),
                              others = drawn_runs(8, 8, kernels);
  std::map<std::string, int> of_kernel;
  std::set<std::string> masks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const DrawnRun& run = runs[i];
    const AttentionProblem& p = run.problem;
    CAPTURE(describe(p));
    ++of_kernel[std::string(run.kernel->name) + " " + std::string(to_string(run.direction))];
    masks.insert(p.seqlen_q < p.seqlen_k ? "cross"
                 : p.group_size() > 1    ? "grouped"
                 : p.window_left >= 0    ? "window"
                 : p.causal              ? "causal"
                                         : "full");
    CHECK_FALSE(run.kernel->refusal(p, run.direction, run.kernel->default_options(p)));
    if (i < again.size()) {
      CHECK(again[i].problem == p);
      CHECK_FALSE(others[i].problem == p);
    }
  }
  CHECK(masks.size() == 5);
  CHECK(of_kernel.size() == 6);
  CHECK(of_kernel["gpu:flash3 backward"] == 10);
}

TEST_CASE("a seed draws the same runs of other libraries, whose first have every stratum") {
  const std::vector<DrawnLibraryRun> runs = drawn_library_runs(7, 45), again = drawn_library_runs(7, 9),
                                     others = drawn_library_runs(8, 9);
  std::map<std::string, int> of_stratum;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const DrawnLibraryRun& run = runs[i];
    CAPTURE(describe(run.problem));
    ++of_stratum[std::string(run.kernel->name) + " " + std::string(to_string(run.direction))];
    CHECK(run.problem.seqlen_k % run.kernel->rows_multiple == 0);
    CHECK(run.problem.heads % run.problem.heads_kv == 0);
    CHECK(run.problem.heads * ((run.problem.seqlen_q + 63) / 64) >= 212);  // FlashAttention-2 splits no keys
    if (i < again.size()) {
      CHECK(again[i].problem == run.problem);
      CHECK_FALSE(others[i].problem == run.problem);
    }
  }
  CHECK(of_stratum.size() == 9);
  CHECK(of_stratum["pytorch:efficient forward"] == 5);
  CHECK(of_stratum["flash-attn:flash4 backward"] == 5);
}

TEST_CASE("the model stands first among its rivals, whose L2s are what their names say") {
  const Machine h200 = load_machine("h200");
  const std::vector<Rival> rivals = rivals_of(h200);
  REQUIRE(rivals.size() == 5);
  CHECK(rivals[0].machine == h200);
  CHECK_FALSE(rivals[1].machine.split_l2());
  CHECK(rivals[1].machine.l2_effective_bytes.value == 32 << 20);
  CHECK_FALSE(rivals[2].machine.split_l2());
  CHECK(rivals[3].machine.split_l2());
  CHECK(rivals[3].machine.cta_progress.empty());
  CHECK(2 * rivals[4].machine.l2_bytes.value == h200.l2_bytes.value);
}

TEST_CASE("what is said of a drawn run has intervals round the model's bytes, and the rivals' beside it") {
  const Machine h200 = load_machine("h200");
  std::vector<StudyTask> tasks = holdout_study(h200, 7, 4, all_kernels());
  REQUIRE(tasks.size() == 8);  // four of ours, and four of other libraries'
  const std::vector<RunEntry> entries = tasks[3].run();
  REQUIRE(entries.size() == rivals_of(h200).size());
  const PassRecord& pass = entries.front().passes.front();
  REQUIRE(pass.simulated->dram_read_interval);
  REQUIRE(pass.simulated->dram_write_interval);
  const auto [least, most] = *pass.simulated->dram_read_interval;
  const auto [least_of_layouts, most_of_layouts] = *pass.simulated->dram_read_range;
  CHECK(least < least_of_layouts);  // by what spent passes were outside of theirs
  CHECK(most > most_of_layouts);
  CHECK((*pass.simulated->dram_write_interval)[1] > (*pass.simulated->dram_write_range)[1]);
  CHECK(entries.front().pages == PagePlacement::random);
  for (std::size_t rival = 1; rival < entries.size(); ++rival) {
    CHECK_FALSE(entries[rival].passes.front().simulated->dram_read_interval);
    CHECK(entries[rival].passes.front().simulated->machine == rivals_of(h200)[rival].name);
  }
}

}  // namespace
}  // namespace tilescope
