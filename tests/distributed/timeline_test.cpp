// SPDX-License-Identifier: Apache-2.0
// The time of ranks with SMs: CTAs on the SM that is free first, and what is lost by cause.
#include "distributed/timeline/timeline.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "distributed/timeline/clocks.hpp"
#include "tests/distributed/schedules.hpp"

namespace tilescope {
namespace {

using testing::distributed_cases;
using testing::DistributedCase;

constexpr RankRates kRates{600e12, 3e12, 390e9, 9e-6, 5e-6};

/// Forward 64 x 64, with dK and dV of a fused pass backward, on so many SMs.
RankKernel kernel_on(std::int64_t sms) {
  return {.programs =
              [](Direction direction, const AttentionProblem& problem) {
                ProgramOptions options = ProgramOptions::with_tile({64, 64});
                options.backward = BackwardOrder::fused;
                return build_programs(Algorithm::flash2, direction, problem, options);
              },
          .ctas_at_once = sms,
          .block_tiles = 1};
}

TEST_CASE("CTAs go to the SM that is free first, many alike at once or one by one") {
  std::mt19937 random(7);
  for (int turn = 0; turn < 50; ++turn) {
    const std::int64_t sms = std::uniform_int_distribution(1, 9)(random);
    SmClock clock(sms);
    std::vector<double> free(static_cast<std::size_t>(sms));
    for (int run = 0; run < 6; ++run) {
      const EvenCtas ctas{std::uniform_int_distribution(1, 40)(random),
                          1.0 * std::uniform_int_distribution(1, 12)(random)};
      double end = 0;
      for (std::int64_t cta = 0; cta < ctas.ctas; ++cta) {
        double& earliest = *std::min_element(free.begin(), free.end());
        end = std::max(end, earliest += 0.5 * ctas.tiles);
      }
      CHECK(clock.issue({ctas}, 0.5) == doctest::Approx(end));
    }
    const double level = *std::max_element(free.begin(), free.end());
    double idle = 0;
    for (const double sm : free) idle += (level - sm) / static_cast<double>(sms);
    CHECK(clock.level() == doctest::Approx(level));
    CHECK(clock.uneven_seconds() == doctest::Approx(idle));
    CHECK(clock.advance(level + 3) == doctest::Approx(idle));
    CHECK(clock.uneven_seconds() == 0);
    clock.insert(2);
    CHECK(clock.level() == doctest::Approx(level + 5));
  }
}

TEST_CASE("operations come once each, after those that they wait for") {
  for (const DistributedCase& c : distributed_cases({1, 3, 4})) {
    const DistributedProgram program = build_distributed(c.problem, Direction::backward, c.options);
    ReadyOperations ready(program);
    std::vector<bool> done(program.operations.size());
    std::size_t count = 0;
    for (; ready.any(); ++count) {
      const int operation = ready.take();
      CHECK_FALSE(done[at(operation)]);
      for (const int wait : program.operations[at(operation)].waits) CHECK(done[at(wait)]);
      done[at(operation)] = true;
      ready.note_end(operation, 1.0 * operation);
    }
    CHECK(count == program.operations.size());
  }
}

TEST_CASE("what several GPUs lose is told whole, by causes that are not below nothing") {
  for (const DistributedCase& c : distributed_cases({1, 2, 3, 4})) {
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const DistributedProgram program = build_distributed(c.problem, direction, c.options);
      const RankKernel kernel = kernel_on(8);
      for (const RankKernel* of : {static_cast<const RankKernel*>(nullptr), &kernel}) {
        INFO(describe(c));
        const RankTimeline timeline = predict_timeline(program, kRates, of);
        const double lost = timeline.seconds - timeline.one_gpu_seconds / program.ranks;
        CHECK(timeline.lost.total() == doctest::Approx(lost).epsilon(1e-9));
        CHECK(timeline.efficiency ==
              doctest::Approx(timeline.one_gpu_seconds / program.ranks / timeline.seconds));
        for (const double wait : {timeline.lost.bytes, timeline.lost.latency, timeline.lost.others})
          CHECK(wait >= 0);
        const bool alone = program.ranks == 1 && program.schedule == LinkSchedule::ring;
        if (alone && of != nullptr) CHECK(timeline.efficiency == doctest::Approx(1));
      }
    }
  }
}

AttentionProblem even_problem() {
  return {.heads = 8,
          .heads_kv = 8,
          .seqlen_q = 2048,
          .seqlen_k = 2048,
          .head_dim = 64,
          .dtype = ElementType::bf16};
}
TimeSplit lost_of(const AttentionProblem& problem, Direction direction, LinkSchedule schedule,
                  const RankRates& rates, std::int64_t sms) {
  const RankKernel kernel = kernel_on(sms);
  return predict_timeline(build_distributed(problem, direction, {schedule, 2}), rates, &kernel).lost;
}

TEST_CASE("each cause shows where it is the only one") {
  RankRates free{1e12, 1e18, 1e18, 0, 0};
  // One GPU has 256 CTAs, each of two 128: as many rounds of 128 SMs, and of 120 one in part filled.
  const auto ulysses = [&](std::int64_t sms) {
    return lost_of(even_problem(), Direction::forward, LinkSchedule::ulysses, free, sms);
  };
  const double one_gpu =
      4.0 * static_cast<double>(even_problem().visible_pairs()) * 64 / free.flops_per_second;
  CHECK(ulysses(128).total() == doctest::Approx(0).epsilon(1e-9));
  CHECK(ulysses(120).tails == doctest::Approx(one_gpu / 3 - one_gpu / 2 * 2 / 3 + ulysses(120).tails));
  CHECK(ulysses(120).tails > 0.1 * one_gpu);  // 2 rounds each instead of 3 together
  CHECK(ulysses(120).total() == doctest::Approx(2 * one_gpu / 3 - one_gpu / 2));
  // Parts of the forward pass are merged; those of one launch need not be.
  RankRates slow_memory = free;
  slow_memory.memory_bytes_per_second = 1e12;
  const auto sums = [&](LinkSchedule schedule) {
    return lost_of(even_problem(), Direction::forward, schedule, slow_memory, 128).sums;
  };
  CHECK(sums(LinkSchedule::ulysses) == 0);
  const std::int64_t out_bytes = 1024 * 8 * 64 * 2;
  CHECK(sums(LinkSchedule::zigzag) == doctest::Approx(3.0 * out_bytes / 1e12));  // a part, O read and written
  // All of an all-to-all is waited for.
  RankRates slow_link = free;
  slow_link.link_bytes_per_second = 1e9;
  const std::int64_t sent = 4 * out_bytes / 2;  // Q, K, V and O, of half of the heads
  CHECK(lost_of(even_problem(), Direction::forward, LinkSchedule::ulysses, slow_link, 128).bytes ==
        doctest::Approx(static_cast<double>(sent) / 1e9));
  RankRates slow_start = free;
  slow_start.launch_seconds = 1e-3;
  CHECK(lost_of(even_problem(), Direction::forward, LinkSchedule::ulysses, slow_start, 128).launches >
        0.4e-3);
}

/// Two ranks send as many bytes to a third.
DistributedProgram two_senders() {
  DistributedProgram program;
  program.problem = even_problem();
  program.ranks = 3;
  for (const int rank : {0, 1, 2, 2}) {
    program.buffers.push_back({rank, TensorName::k, rank == 2 ? BufferRole::received : BufferRole::operand, 8,
                               1024, 64, ElementType::bf16});
  }
  for (const int from : {0, 1}) {
    const auto whole = [](int buffer) { return BufferBlock{buffer, {0, 8}, {0, 1024}}; };
    program.operations.push_back({0, {}, Move{MoveKind::copy, whole(from), whole(from + 2)}, 0});
  }
  return program;
}

TEST_CASE("a link carries one transfer after the other, in as well as out") {
  const RankRates rates{1e12, 1e18, 1e9, 0, 0};
  const DistributedProgram program = two_senders();
  const double each = static_cast<double>(program.bytes(program.buffers[0])) / 1e9;
  const RankTimeline timeline = predict_timeline(program, rates);
  CHECK(timeline.seconds == doctest::Approx(2 * each));
  CHECK(timeline.ranks[2].link_seconds == doctest::Approx(2 * each));
}

TEST_CASE("each kernel that an operation launches takes its time to begin") {
  const RankKernel kernel = kernel_on(128);
  const DistributedProgram alone =
      build_distributed(even_problem(), Direction::backward, {LinkSchedule::ring, 1});
  const DeviceWork work(alone, kernel);
  int launches = 0, operations = 0;
  for (int operation = 0; operation < static_cast<int>(alone.operations.size()); ++operation) {
    launches += work.launches(operation);
    operations += work.launches(operation) > 0;
  }
  REQUIRE(launches > operations);
  // So slow to begin that the rate is that of the tiles alone, which none of it is taken from.
  const RankRates rates{1e15, 1e18, 1e18, 0, 1};
  const RankTimeline timeline = predict_timeline(alone, rates, &kernel);
  const double flops = 10.0 * static_cast<double>(even_problem().visible_pairs()) * 64;
  CHECK(timeline.ranks[0].attention_seconds == doctest::Approx(flops / 1e15).epsilon(1e-9));
  CHECK(timeline.seconds == doctest::Approx(launches + flops / 1e15));
}

TEST_CASE("the bytes of passes beside the launches, by what stands in memory before and after") {
  int added = 0, stored = 0, cleared = 0;
  for (const DistributedCase& c : distributed_cases({2, 3, 4})) {
    const DistributedProgram program = build_distributed(c.problem, Direction::backward, c.options);
    const AccumulationPlan plan = plan_accumulation(program);
    const RankKernel kernel = kernel_on(8);
    const DeviceWork work(program, kernel);
    const std::int64_t element = element_bytes(c.problem.dtype);
    for (int index = 0; index < static_cast<int>(program.operations.size()); ++index) {
      INFO(describe(c));
      CAPTURE(index);
      const auto& what = program.operations[at(index)].what;
      if (const Attend* const attend = std::get_if<Attend>(&what)) {
        const LaunchPlan& launch = plan.launches[at(index)];
        const auto& k = program.buffers[at(attend->buffer(TensorName::k))];
        const std::int64_t numbers = program.problem.batch * k.heads * attend->slice.kv_rows.count() * k.cols;
        const auto& q = program.buffers[at(attend->buffer(TensorName::q))];
        const std::int64_t rows = program.problem.batch * q.heads * attend->slice.q_rows.count();
        std::int64_t bytes = launch.makes_delta ? rows * (2 * q.cols * element + 4) : 0;
        for (const OutputPlacement placement : {launch.dk, launch.dv}) {
          if (placement == OutputPlacement::store)
            bytes += numbers * (element + 4);  // the part read, the sum written
          if (placement == OutputPlacement::add) bytes += numbers * (element + 4 + 4);  // and the sum read
          stored += placement == OutputPlacement::store;
          added += placement == OutputPlacement::add;
        }
        CHECK(work.memory_bytes(index) == bytes);
      } else if (const Move& move = std::get<Move>(what); move.kind == MoveKind::add) {
        const MovePlan& addition = plan.moves[at(index)];
        if (addition.nothing || !addition.parts.empty()) continue;
        const std::int64_t from = program.bytes(move.from), to = program.bytes(move.to);
        CHECK(work.memory_bytes(index) == from + (addition.clears_source ? from : 0) + 2 * to);
        cleared += addition.clears_source;
      }
    }
  }
  CHECK(added > 0);
  CHECK(stored > 0);
  CHECK(cleared > 0);
}

}  // namespace
}  // namespace tilescope
