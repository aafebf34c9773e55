// SPDX-License-Identifier: Apache-2.0
// Distributed programs on two GPUs: judged as every kernel, by either transport, again and again, and with
// ranks that fail. 77 (skipped) where there are not two GPUs that reach each other.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "cpu_ref/judge/equivalence.hpp"
#include "distributed/devices/device_ranks.hpp"
#include "distributed/execution/rank_failure.hpp"
#include "distributed/execution/run_on_ranks.hpp"
#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

using enum TensorName;
constexpr int kRanks = 2;

AttentionProblem problem_of(std::int64_t heads_kv, std::int64_t seqlen_q, std::int64_t seqlen_k, int head_dim,
                            ElementType dtype, bool causal) {
  return {.batch = seqlen_q == seqlen_k ? 1 : 2,
          .heads = 4,
          .heads_kv = heads_kv,
          .seqlen_q = seqlen_q,
          .seqlen_k = seqlen_k,
          .head_dim = head_dim,
          .dtype = dtype,
          .causal = causal};
}

std::vector<AttentionProblem> problems() {
  return {problem_of(2, 512, 512, 128, ElementType::bf16, true),
          problem_of(4, 387, 387, 64, ElementType::fp16, true),
          problem_of(4, 300, 421, 128, ElementType::bf16, true),
          problem_of(2, 421, 300, 96, ElementType::fp16, true),
          problem_of(4, 256, 256, 40, ElementType::bf16, false)};
}

void run(const DistributedProgram& program, TensorSet& tensors, const DeviceRankOptions& options,
         int repetitions = 1) {
  DeviceRanks ranks(program, options);
  ranks.upload(tensors);
  ranks.run(repetitions);
  for (const TensorName name : output_tensors(program.problem, program.direction)) tensors.allocate(name);
  ranks.download(tensors);
}

TEST_CASE(
    "every schedule passes the judge on two GPUs, by copy engine and NCCL, also at the third repetition") {
  const std::shared_ptr<NcclRanks> nccl = connect_nccl(kRanks);
  for (const AttentionProblem& problem : problems()) {
    Reference reference(problem, InputKind::normal, Direction::backward);
    for (const LinkSchedule schedule : kLinkSchedules) {
      if (schedule == LinkSchedule::ulysses_ring) continue;  // needs four
      for (const Transport transport : kTransports) {
        for (const int repetitions : {1, 3}) {
          INFO(describe(problem));
          INFO(to_string(schedule));
          INFO(to_string(transport));
          CAPTURE(repetitions);
          const DeviceRankOptions options{.transport = transport, .nccl = nccl};
          const RankVerdict result = judge_on_ranks(
              reference, Direction::backward, {schedule, kRanks},
              [&](const DistributedProgram& program, TensorSet& tensors) -> std::vector<LinkBytes> {
                run(program, tensors, options, repetitions);
                return {};
              });
          for (const TensorVerdict& tensor : result.verdict.tensors) {
            CAPTURE(to_string(tensor.tensor));
            CAPTURE(tensor.share);
            CHECK(tensor.passed);
          }
        }
      }
    }
  }
}

TEST_CASE("one rank is one kernel; gpu:flash2-mma runs the ranks as well") {
  const AttentionProblem problem = problem_of(2, 500, 500, 128, ElementType::bf16, true);
  Reference reference(problem, InputKind::normal, Direction::backward);
  for (const char* kernel : {"gpu:flash2-mma", "gpu:flash3"}) {
    for (const int ranks : {1, kRanks}) {
      const DeviceRankOptions options{.kernel = &find_gpu_kernel(kernel)};
      CAPTURE(kernel);
      CAPTURE(ranks);
      const RankVerdict result = judge_on_ranks(
          reference, Direction::backward, {LinkSchedule::zigzag, ranks},
          [&](const DistributedProgram& program, TensorSet& tensors) -> std::vector<LinkBytes> {
            run(program, tensors, options);
            return {};
          });
      CHECK(result.verdict.passed());
    }
  }
}

TEST_CASE("the forward pass gives the same bits again") {
  const AttentionProblem problem = problem_of(2, 700, 700, 128, ElementType::bf16, true);
  for (const Transport transport : kTransports) {
    std::vector<TensorSet> runs;
    for (int i = 0; i < 2; ++i) {
      TensorSet& tensors = runs.emplace_back(problem);
      fill_random_inputs(tensors, Direction::forward);
      run(build_distributed(problem, Direction::forward, {LinkSchedule::zigzag, kRanks}), tensors,
          {.transport = transport});
    }
    for (const TensorName name : {out, lse}) {
      const Tensor &once = runs[0][name], &again = runs[1][name];
      CHECK(std::memcmp(once.data(), again.data(), static_cast<std::size_t>(once.bytes())) == 0);
    }
  }
}

TEST_CASE("a rank that fails, or stands still, ends both within the time limit, and is named") {
  using namespace std::chrono_literals;
  const AttentionProblem problem = problem_of(2, 512, 512, 128, ElementType::bf16, true);
  const DistributedProgram program =
      build_distributed(problem, Direction::forward, {LinkSchedule::zigzag, kRanks});
  for (const Transport transport : kTransports) {
    for (const bool throws : {true, false}) {
      DeviceRankOptions options{.transport = transport, .time_limit = 1s};
      options.before = [throws](int rank, int) {
        if (rank != 1) return;
        if (throws) throw std::runtime_error("the device is gone");
        std::this_thread::sleep_for(2500ms);
      };
      CAPTURE(to_string(transport));
      CAPTURE(throws);
      TensorSet tensors(problem);
      fill_random_inputs(tensors, Direction::forward);
      DeviceRanks ranks(program, options);
      ranks.upload(tensors);
      int failed = -1;
      try {
        ranks.run();
      } catch (const RankFailure& failure) {
        failed = failure.rank();
      }
      CHECK(failed == 1);
    }
  }
}

}  // namespace
}  // namespace tilescope

int main(int argc, char** argv) {
  try {
    tilescope::require_devices(2);
  } catch (const tilescope::MachineLacks& lack) {
    std::printf("skipped: %s\n", lack.what());
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
