// SPDX-License-Identifier: Apache-2.0
// `bench --tune` without a device: what would be timed, and what the times choose.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/cli/bench/bench_tune.hpp"
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
      CHECK(task.candidates == kernel.tile_choices(problem, task.pass));
      REQUIRE(task.cases.size() == task.candidates.size());
      for (std::size_t i = 0; i < task.cases.size(); ++i) {
        ProgramOptions options = task.cases[i].options;
        CHECK(options[task.pass].tile == task.candidates[i]);
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
  CHECK(forward->pruned.front() == TileShape{128, 128});                                          // 160 KiB
  CHECK(forward->candidates.front() == kernel.default_options(problem)[PassName::forward].tile);  // 96 KiB
  CHECK(forward->candidates.size() + forward->pruned.size() ==
        kernel.tile_choices(problem, PassName::forward).size());
  CHECK(tuning_tasks(kernel, problem, {.compute_capability = 90, .shared_bytes_per_cta = 1024}).empty());
}

TEST_CASE("an A100 runs every tile, some of them with one buffer for two") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  for (const std::int64_t head_dim : {64, 128, 256}) {
    for (const TuningTask& task : tuning_tasks(kernel, fp16_problem(head_dim), kSm80)) {
      CHECK(task.pruned.empty());
    }
  }
}

TEST_CASE("kernels with one tile shape have nothing to tune") {
  AttentionProblem problem = fp16_problem(64);
  problem.dtype = ElementType::fp32;
  for (const char* name : {"gpu:standard", "gpu:flash1", "gpu:flash2-simt"}) {
    CHECK(tuning_tasks(find_gpu_kernel(name).row, problem, kSm90).empty());
  }
}

TEST_CASE("the fastest median is chosen; a tile without samples is no candidate") {
  const Kernel& kernel = find_gpu_kernel("gpu:flash2-mma").row;
  const TuningTask task = tuning_tasks(kernel, fp16_problem(256), kSm90).front();
  REQUIRE(task.candidates.size() == 3);
  const std::vector<std::vector<double>> samples = {{3, 3, 9}, {2, 8, 8}, {5, 4, 1}};
  const TileChoice choice = choose_tile(task, samples, "Device A");
  CHECK(choice.tile == task.candidates[0]);
  CHECK(choice.tried.size() == 3);
  CHECK(choice.tried[2].median_s == 4);
  CHECK(choice.device == "Device A");
  CHECK(choose_tile(task, {{}, {2}, {1}}, "A").tile == task.candidates[2]);
  CHECK_THROWS_AS(choose_tile(task, {{}, {}, {}}, "A"), MachineLacks);
  const std::string table = tuning_table({task}, {choice});
  CHECK(table.find("chosen") != std::string::npos);
}

TEST_CASE("bench --tune refuses what it cannot tune") {
  testing::check_refused({{"bench", "--tune", "--kernel", "cpu:flash2"}, {"cpu:flash2", "GPU"}});
  testing::check_refused({{"bench", "--tune", "--tile", "64x64"}, {"tile", "--tune"}});
  testing::check_refused({{"bench", "--tune", "--peers"}, {"peers", "--tune"}});
}

}  // namespace
}  // namespace tilescope
