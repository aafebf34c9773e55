// SPDX-License-Identifier: Apache-2.0
// `bench --tune` without a device: what would be timed, and what the times choose.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/cli/bench/bench.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/cli/program.hpp"

namespace tilescope {
namespace {

using namespace cli;

AttentionProblem fp16_problem(std::int64_t head_dim) {
  return {.heads = 2,
          .heads_kv = 2,
          .seqlen_q = 512,
          .seqlen_k = 512,
          .head_dim = head_dim,
          .dtype = ElementType::fp16};
}

TEST_CASE("tuning tries each legal tile of each pass once, the kernel's own first") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  for (const std::int64_t head_dim : {64, 128, 256}) {
    const AttentionProblem problem = fp16_problem(head_dim);
    const std::vector<TuningTask> tasks = tuning_tasks(kernel, problem, kSm90);
    REQUIRE(!tasks.empty());
    for (const TuningTask& task : tasks) {
      CAPTURE(to_string(task.pass));
      CHECK(task.pruned.empty());
      CHECK(task.candidates == kernel.pass_choices(problem, task.pass));
      REQUIRE(task.cases.size() == task.candidates.size());
      for (std::size_t i = 0; i < task.cases.size(); ++i) {
        ProgramOptions options = task.cases[i].options;
        CHECK(options[task.pass].tile == task.candidates[i].tile);
        CHECK(options[task.pass].launch == task.candidates[i].launch);
        CHECK_FALSE(kernel.refusal(problem, task.cases[i].direction, options));
        CHECK((options.backward == BackwardOrder::split) ==
              (task.pass == PassName::dq || task.pass == PassName::dkdv));
      }
    }
  }
}

TEST_CASE("tiles that do not fit the device's shared memory are pruned, and nothing is left of them") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  const AttentionProblem problem = fp16_problem(128);
  const auto tasks = tuning_tasks(kernel, problem, kSm86);
  const auto forward = std::find_if(tasks.begin(), tasks.end(),
                                    [](const TuningTask& task) { return task.pass == PassName::forward; });
  REQUIRE(forward != tasks.end());
  CHECK(forward->pruned.front().choice.tile == TileShape{128, 128});  // 160 KiB
  CHECK(forward->pruned.front().reason == PruneReason::does_not_fit);
  CHECK(forward->pruned.front().detail.find("KiB") != std::string::npos);
  CHECK(forward->candidates.front().tile ==
        kernel.default_options(problem)[PassName::forward].tile);  // 96 KiB
  CHECK(forward->candidates.size() + forward->pruned.size() ==
        kernel.pass_choices(problem, PassName::forward).size());
  CHECK(tuning_tasks(kernel, problem, {.compute_capability = 90, .shared_bytes_per_cta = 1024}).empty());
}

TEST_CASE("an A100 runs every tile, some of them with one buffer for two, more stages need not fit") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  for (const std::int64_t head_dim : {64, 128, 256}) {
    for (const TuningTask& task : tuning_tasks(kernel, fp16_problem(head_dim), kSm80)) {
      for (const PrunedChoice& pruned : task.pruned) CHECK(pruned.choice.launch.stages > 0);
    }
  }
}

TEST_CASE("tiles larger than the problem are left out, but for the kernel's own, and told with the reason") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  AttentionProblem problem = fp16_problem(64);
  problem.seqlen_q = 100;
  problem.seqlen_k = 64;
  const std::vector<TuningTask> tasks = tuning_tasks(kernel, problem, kSm90);
  const auto forward = std::find_if(tasks.begin(), tasks.end(),
                                    [](const TuningTask& task) { return task.pass == PassName::forward; });
  REQUIRE(forward != tasks.end());
  const TileShape own = kernel.default_options(problem)[PassName::forward].tile;
  CHECK(forward->candidates.front().tile == own);
  for (const PassChoice& choice : forward->candidates) {
    CHECK((choice.tile == own || (choice.tile.block_m <= 100 && choice.tile.block_n <= 64)));
  }
  REQUIRE(!forward->pruned.empty());
  for (const PrunedChoice& pruned : forward->pruned) CHECK(pruned.reason == PruneReason::larger_than_problem);
  const std::string text = pruned_text({*forward});
  CHECK(text.find(std::to_string(forward->pruned.size()) + " larger than the problem") != std::string::npos);

  const std::vector<std::vector<double>> samples(forward->cases.size(), {1e-3});
  const std::string csv = tuning_csv({*forward}, {choose_tile(*forward, samples, "A")});
  const auto lines = static_cast<std::size_t>(std::count(csv.begin(), csv.end(), '\n'));
  CHECK(lines == 1 + forward->candidates.size() + forward->pruned.size());
  CHECK(csv.find(",128,128,4,3,0.001,tried\n") != std::string::npos);
  CHECK(csv.find(",256,64,own,own,,larger than the problem\n") != std::string::npos);
}

TEST_CASE("kernels with one tile shape have nothing to tune") {
  AttentionProblem problem = fp16_problem(64);
  problem.head_dim = 128;  // gpu:flash1 has others at 64
  problem.dtype = ElementType::fp32;
  for (const char* name : {"gpu:standard", "gpu:flash1", "gpu:flash2-simt"}) {
    CHECK(tuning_tasks(find_gpu_kernel(name).row, problem, kSm90).empty());
  }
}

TEST_CASE("the fastest median is chosen, a tile without samples is no candidate") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  const TuningTask task = tuning_tasks(kernel, fp16_problem(256), kSm90).front();
  REQUIRE(task.candidates.size() >= 4);
  std::vector<std::vector<double>> samples(task.candidates.size());
  samples[0] = {3, 3, 9};
  samples[1] = {2, 8, 8};
  samples[2] = {5, 4, 1};
  const TileChoice choice = choose_tile(task, samples, "Device A");
  CHECK(choice.choice == task.candidates[0]);
  CHECK(choice.seqlen == 512);
  CHECK(choice.tried.size() == 3);
  CHECK(choice.tried[2].median_s == 4);
  CHECK(choice.device == "Device A");
  samples[0] = samples[2] = {};
  samples.back() = {1};  // the same tile as another, with other warps or stages
  CHECK(choose_tile(task, samples, "A").choice == task.candidates.back());
  CHECK_FALSE(task.candidates.back().launch == PassLaunch{});
  CHECK_THROWS_AS(choose_tile(task, std::vector<std::vector<double>>(samples.size()), "A"), MachineLacks);
  const std::string table = cli::Output(tuning_table({choice})).text();
  CHECK(table.find("chosen") != std::string::npos);
}

TEST_CASE("bench --tune refuses what it cannot tune") {
  testing::check_refused({{"bench", "--tune", "--kernel", "cpu:flash2"}, {"cpu:flash2", "GPU"}});
  testing::check_refused({{"bench", "--tune", "--tile", "64x64"}, {"tile", "--tune"}});
  testing::check_refused({{"bench", "--tune", "--peers"}, {"peers", "--tune"}});
  testing::check_refused({{"bench", "--tune", "--plot", "a.svg"}, {"--plot", "--tune"}});
}

}  // namespace
}  // namespace tilescope
