// SPDX-License-Identifier: Apache-2.0
// --shard I/N and `record merge`: the parts of a sweep are the whole.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <filesystem>

#include "analysis/cli/options/sweep_axes.hpp"
#include "analysis/records/run_record.hpp"
#include "common/temporary_folder.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

const std::vector<std::string> sweep = {
    "simulate",  "--sweep", "seqlen=64..2048", "--sweep",    "head_dim=32,64",
    "--machine", "h200",    "--kernel",        "cpu:flash2", "--closed-form"};

ProgramResult part(const std::string& shard, const std::string& file,
                   std::vector<std::string> command = sweep) {
  command.insert(command.end(), {"--shard", shard, "--json", file});
  return run_program(command);
}

std::vector<int> tasks_of(const std::string& text, const std::vector<double>& costs) {
  cli::Shard shard;
  CLI::App app;
  std::string json;
  shard.add_to(app, {}, json);
  app.parse(std::vector<std::string>{text, "--shard"});  // CLI11 takes them from the back
  std::vector<int> tasks(costs.size());
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i] = static_cast<int>(i);
  return shard.part_of(tasks, costs);
}

}  // namespace

TEST_CASE("every task is in one part, in order, and the parts cost about the same") {
  const std::vector<double> costs = {1, 1, 2, 4, 8, 8, 4, 2, 1, 1};
  for (const int parts : {1, 2, 3, 4, 7, 40}) {
    std::vector<int> joined;
    for (int i = 0; i < parts; ++i) {
      double cost = 0;
      for (const int task : tasks_of(fmt::format("{}/{}", i, parts), costs)) {
        joined.push_back(task);
        cost += costs[static_cast<std::size_t>(task)];
      }
      CHECK(cost <= 32.0 / parts + 8);
    }
    CHECK(joined == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
  CHECK(tasks_of("0/2", {3, 3, 3, 3}) == std::vector<int>{0, 1});
}

TEST_CASE("the parts of a sweep, merged, are the whole") {
  const TemporaryFolder folder;
  const auto at = [&folder](const std::string& name) { return (folder.path() / name).string(); };
  std::vector<std::string> command = sweep;
  command.insert(command.end(), {"--json", at("whole.json")});
  REQUIRE(run_program(command).exit_code == 0);
  std::vector<std::string> merge = {"record", "merge"};
  for (const int i : {2, 0, 1}) {  // in any order
    const std::string file = at(fmt::format("part-{}.json", i));
    REQUIRE(part(fmt::format("{}/3", i), file).exit_code == 0);
    merge.push_back(file);
  }
  merge.insert(merge.end(), {"--json", at("merged.json")});
  REQUIRE(run_program(merge).exit_code == 0);
  const RunRecord whole = read_run_record(at("whole.json")), merged = read_run_record(at("merged.json"));
  CHECK(whole.runs.size() == 12);
  const bool same = merged.runs == whole.runs;
  CHECK(same);
  CHECK_FALSE(merged.shard.has_value());
  CHECK(std::vector(merged.argv.begin() + 1, merged.argv.end()) == sweep);
}

TEST_CASE("a merge without a part, of one twice, or of strangers is refused by name") {
  const TemporaryFolder folder;
  const auto at = [&folder](const std::string& name) { return (folder.path() / name).string(); };
  REQUIRE(part("0/2", at("a.json")).exit_code == 0);
  REQUIRE(part("1/2", at("b.json")).exit_code == 0);
  REQUIRE(part("1/3", at("c.json")).exit_code == 0);
  std::vector<std::string> other = sweep;
  other[2] = "seqlen=64..1024";
  REQUIRE(part("1/2", at("other.json"), other).exit_code == 0);
  const auto refusal = [&at](std::vector<std::string> names) {
    std::vector<std::string> command = {"record", "merge"};
    for (const std::string& name : names) command.push_back(at(name));
    const ProgramResult result = run_program(command);
    CHECK(result.exit_code == 2);
    return result.err;
  };
  CHECK(contains(refusal({"a.json"}), "1/2: is missing"));
  CHECK(contains(refusal({"a.json", "a.json"}), "part 0/2 was given twice"));
  CHECK(contains(refusal({"a.json", "c.json"}), "must be one of 2 parts, not of 3"));
  CHECK(contains(refusal({"a.json", "other.json"}), "same command"));
}

TEST_CASE("{part} in the name of a record is the part's number, where there are parts") {
  const TemporaryFolder folder;
  const std::string name = (folder.path() / "part-{part}.json").string();
  REQUIRE(part("1/2", name).exit_code == 0);
  CHECK(read_run_record((folder.path() / "part-1.json").string()).shard == "1/2");
  CHECK_FALSE(std::filesystem::exists(name));
  std::vector<std::string> whole = sweep;
  whole.insert(whole.end(), {"--json", name});
  REQUIRE(run_program(whole).exit_code == 0);
  CHECK(std::filesystem::exists(name));
}

TEST_CASE("--shard is refused by name, and auto reads the job's variables") {
  for (const char* bad : {"3/3", "x/3", "1", "-1/3", "0/0"}) {
    CAPTURE(bad);
    const ProgramResult result = part(bad, "-");
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, "--shard"));
  }
  CHECK(contains(run_program({"simulate", "--shard", "0/2"}).err, "--sweep"));
  CHECK(contains(part("auto", "-").err, "no variables"));
  ::setenv("SLURM_ARRAY_TASK_ID", "5", 1);
  ::setenv("SLURM_ARRAY_TASK_MIN", "4", 1);
  ::setenv("SLURM_ARRAY_TASK_COUNT", "2", 1);
  const ProgramResult second = part("auto", "-");
  for (const char* name : {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_COUNT"})
    ::unsetenv(name);
  CHECK(second.exit_code == 0);
  CHECK(contains(second.out, "\"shard\": \"1/2\""));
}

}  // namespace tilescope::testing
