// SPDX-License-Identifier: Apache-2.0
// Processes that hear of each other: here threads, each with a connection of its own.
#include "distributed/processes/process_group.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <numeric>

#include "common/errors.hpp"
#include "common/temporary_folder.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

using namespace std::chrono_literals;

/// A folder that no other run of this test has, and no group before this one.
ProcessPlace place_of(int rank, int ranks) {
  static const TemporaryFolder folder;
  static int turn = 0;
  if (rank == 0) ++turn;
  return {.rank = rank, .ranks = ranks, .local_rank = rank, .folder = folder.path() / std::to_string(turn)};
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

TEST_CASE("a process that does not come is named, and nothing stays") {
  const ProcessPlace first = place_of(0, 2);
  CHECK_THROWS_WITH_AS(ProcessGroup(first, 50ms), doctest::Contains("rank 1 failed: did not come"),
                       RankFailure);
  CHECK(!std::filesystem::exists(first.folder));
  ProcessPlace other = first;
  other.rank = 1;
  CHECK_THROWS_WITH_AS(ProcessGroup(other, 50ms), doctest::Contains("rank 0 failed: did not come"),
                       RankFailure);
}

TEST_CASE("a process that is killed is named within a second") {
  const ProcessPlace first = place_of(0, 2);
  const pid_t child = fork();
  if (child == 0) {
    ProcessPlace second = first;
    second.rank = second.local_rank = 1;
    const ProcessGroup group(second, 5s);
    for (;;) pause();
  }
  ProcessGroup group(first, 5s);
  group.check();
  const auto began = std::chrono::steady_clock::now();
  kill(child, SIGKILL);
  CHECK_THROWS_WITH_AS(wait_in_vain(group), "rank 1 failed: its process ended", RankFailure);
  CHECK(std::chrono::steady_clock::now() - began < 1s);
  waitpid(child, nullptr, 0);
}

TEST_CASE("ranks that disagree about sizes fail, and neither reads beyond") {
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{1 << 20}}) {
    const auto said = failures(2, 5s, [&](ProcessGroup& group) {
      std::vector<double> values(group.rank() == 0 ? 4 : size);
      group.reduce(std::span(values), std::plus<>());
    });
    for (const std::string& text : said)
      CHECK(text == "rank 1 failed: gave " + std::to_string(8 * size) + " bytes where there are 32");
  }
}

TEST_CASE("what an earlier run left counts for nothing, and a folder of others or in use is refused") {
  ProcessPlace first = place_of(0, 2);
  std::filesystem::create_directory(first.folder);
  chmod(first.folder.c_str(), 0755);
  CHECK_THROWS_WITH_AS(ProcessGroup(first, 50ms), doctest::Contains("of this user alone"), BadInput);
  chmod(first.folder.c_str(), 0700);
  for (const char* name : {"failure", "stall-1", "rank-0", "rank-1", "values-0-1"})
    std::ofstream(first.folder / name) << "1\nof an earlier run";
  std::vector<double> sums(2);
  run_threads(2, [&](int rank) {
    ProcessPlace place = first;
    place.rank = rank;
    ProcessGroup group(place, 5s);
    double one = 1;
    group.reduce(std::span(&one, 1), std::plus<>());
    sums[static_cast<std::size_t>(rank)] = one;
    if (rank == 0) CHECK_THROWS_AS(ProcessGroup(first, 50ms), BadInput);
    group.reduce(std::span(&one, 1), std::plus<>());
  });
  CHECK(sums == std::vector<double>{2, 2});
  CHECK(!std::filesystem::exists(first.folder));
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
                              {"LOCAL_WORLD_SIZE", "4"},
                              {"TORCHELASTIC_RUN_ID", "a/../b"},
                              {"MASTER_PORT", "29500"}});
    const ProcessPlace place = launched_process();
    CHECK(place.rank == 3);
    CHECK(place.ranks == 4);
    CHECK(place.local_rank == 1);
    CHECK(place.folder == std::filesystem::temp_directory_path() /
                              ("tilescope-" + std::to_string(geteuid()) + "-a----b-29500"));
    const Variables of_two_hosts(std::vector{std::pair{"LOCAL_WORLD_SIZE", "2"}});
    CHECK_THROWS_WITH_AS(launched_process(), doctest::Contains("TILESCOPE_RENDEZVOUS"), MachineLacks);
    const Variables named(std::vector{std::pair{"TILESCOPE_RENDEZVOUS", "/shared"}});
    CHECK(launched_process().folder == "/shared/tilescope-ranks");
  }
  {
    const Variables mpirun(
        {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_NAMESPACE", "7@1"}});
    const ProcessPlace place = launched_process();
    CHECK(place.rank == 1);
    CHECK(place.local_rank == 1);
    CHECK(place.folder.filename() == "tilescope-" + std::to_string(geteuid()) + "-7-1");
  }
  {
    const Variables slurm({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}});
    CHECK_THROWS_AS(launched_process(), MachineLacks);
  }
  {
    const Variables wrong({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
    CHECK_THROWS_WITH_AS(launched_process(), doctest::Contains("RANK = 2"), BadInput);
  }
}

}  // namespace
}  // namespace tilescope
