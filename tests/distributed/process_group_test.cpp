// SPDX-License-Identifier: Apache-2.0
// Processes that hear of each other: here threads, each with a connection of its own.
#include "distributed/processes/process_group.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <mutex>
#include <numeric>

#include "common/errors.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

using namespace std::chrono_literals;

/// A port that other runs of this test hardly use at the same time.
ProcessPlace place_of(int rank, int ranks) {
  static int turn = 0;
  if (rank == 0) ++turn;
  return {.rank = rank,
          .ranks = ranks,
          .local_rank = rank,
          .host = "127.0.0.1",
          .port = 20000 + getpid() % 20000 + turn};
}

/// What each of so many ranks fails with, by rank: "" if it does not.
std::vector<std::string> failures(int ranks, std::chrono::milliseconds limit,
                                  const std::function<void(ProcessGroup&)>& body) {
  std::vector<ProcessPlace> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back(place_of(rank, ranks));
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](int rank) {
    try {
      ProcessGroup group(places[static_cast<std::size_t>(rank)], limit);
      body(group);
    } catch (const RankFailure& failure) {
      said[static_cast<std::size_t>(rank)] = failure.what();
    }
  });
  return said;
}

TEST_CASE("all processes get the sum of all, in the order of ranks") {
  for (const int ranks : {1, 2, 5}) {
    std::mutex mutex;
    std::vector<std::vector<double>> sums;
    const auto said = failures(ranks, 5s, [&](ProcessGroup& group) {
      for (int turn = 0; turn < 3; ++turn) {
        std::vector<double> values = {1.0 * group.rank(), 1.0, 1.0 * turn};
        group.reduce(std::span(values), [](double a, double b) { return a * 10 + b; });
        const std::lock_guard<std::mutex> lock(mutex);
        sums.push_back(values);
      }
    });
    double digits = 0;
    for (int rank = 1; rank < ranks; ++rank) digits = digits * 10 + rank;
    CHECK(sums.size() == static_cast<std::size_t>(3 * ranks));
    for (const std::vector<double>& sum : sums) CHECK(sum.front() == digits);
    for (const std::string& text : said) CHECK(text.empty());
  }
}

/// Waits for what never comes, as for a kernel of NCCL.
void wait_in_vain(ProcessGroup& group) {
  for (;;) {
    group.check();
    usleep(1000);
  }
}

TEST_CASE("a process that ends, or says that it fails, is named to all others") {
  for (const int culprit : {0, 1, 2}) {
    for (const bool says : {false, true}) {
      for (const bool in_reduction : {false, true}) {
        const auto said = failures(3, 5s, [&](ProcessGroup& group) {
          double value = 0;
          group.reduce(std::span(&value, 1), std::plus<>());
          if (group.rank() != culprit && !in_reduction) wait_in_vain(group);
          if (group.rank() != culprit) return group.reduce(std::span(&value, 1), std::plus<>());
          if (says) group.fail("the device is gone");
        });
        CAPTURE(culprit);
        CAPTURE(says);
        CAPTURE(in_reduction);
        const std::string expected = "rank " + std::to_string(culprit) +
                                     " failed: " + (says ? "the device is gone" : "its process ended");
        for (int rank = 0; rank < 3; ++rank)
          CHECK(said[static_cast<std::size_t>(rank)] == (rank == culprit ? "" : expected));
      }
    }
  }
}

TEST_CASE("a process that stands still is named by those that wait for it") {
  for (const int still : {0, 2}) {
    const auto said = failures(3, 400ms, [&](ProcessGroup& group) {
      double value = 0;
      group.reduce(std::span(&value, 1), std::plus<>());
      if (group.rank() != still) group.stalled("did nothing for 400 ms");
      usleep(1500000);
    });
    CAPTURE(still);
    const std::string expected = "rank " + std::to_string(still) + " failed: did nothing for 400 ms";
    for (int rank = 0; rank < 3; ++rank)
      CHECK(said[static_cast<std::size_t>(rank)] == (rank == still ? "" : expected));
  }
}

TEST_CASE("a process that does not come is named") {
  const ProcessPlace first = place_of(0, 2);
  CHECK_THROWS_WITH_AS(ProcessGroup(first, 50ms), doctest::Contains("rank 1 failed: did not come"),
                       RankFailure);
  ProcessPlace other = first;
  other.rank = 1;
  CHECK_THROWS_WITH_AS(ProcessGroup(other, 50ms), doctest::Contains("rank 0 failed: cannot be reached"),
                       RankFailure);
}

/// Variables of a launcher, for as long as it lives.
class Variables {
 public:
  explicit Variables(std::vector<std::pair<const char*, const char*>> values) : values_(std::move(values)) {
    for (const auto& [name, value] : values_) setenv(name, value, 1);
  }
  ~Variables() {
    for (const auto& [name, value] : values_) unsetenv(name);
  }

 private:
  std::vector<std::pair<const char*, const char*>> values_;
};

TEST_CASE("a process finds its place by the variables of its launcher") {
  CHECK_THROWS_AS(launched_process(), BadInput);
  {
    const Variables torchrun({{"RANK", "3"},
                              {"WORLD_SIZE", "4"},
                              {"LOCAL_RANK", "1"},
                              {"MASTER_ADDR", "node7"},
                              {"MASTER_PORT", "29500"}});
    const ProcessPlace place = launched_process();
    CHECK(place.rank == 3);
    CHECK(place.ranks == 4);
    CHECK(place.local_rank == 1);
    CHECK(place.host == "node7");
    CHECK(place.port == 29501);
  }
  {
    const Variables mpirun(
        {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"TILESCOPE_PORT", "777"}});
    const ProcessPlace place = launched_process();
    CHECK(place.rank == 1);
    CHECK(place.local_rank == 1);
    CHECK(place.host == "127.0.0.1");
    CHECK(place.port == 777);
  }
  {
    const Variables wrong({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
    CHECK_THROWS_WITH_AS(launched_process(), doctest::Contains("RANK = 2"), BadInput);
  }
}

}  // namespace
}  // namespace tilescope
