// SPDX-License-Identifier: Apache-2.0
// simulate and verify with --gpus, as a user runs them.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_program.hpp"

namespace tilescope::testing {
namespace {

using Json = nlohmann::json;

TEST_CASE("simulate --gpus prints and records link bytes, memory, balance and time of each GPU") {
  const std::vector<std::string> command = {"simulate",   "--preset", "llama3-8b", "--gpus", "4",
                                            "--schedule", "zigzag",   "--pass",    "fwd+bwd"};
  const ProgramResult table = run_program(command);
  CHECK(table.exit_code == 0);
  for (const char* word : {"zigzag on 4 GPUs", "link sent", "25.17 MB", "forward", "backward", "predicted"}) {
    CAPTURE(word);
    CHECK(table.out.find(word) != std::string::npos);
  }
  std::vector<std::string> with_json = command;
  with_json.insert(with_json.end(), {"--json", "-"});
  const Json record = Json::parse(run_program(with_json).out);
  CHECK(record.at("schema") == "tilescope.distributed/1");
  constexpr std::int64_t kShard = 8192 / 4 * 8 * 2 * 128 * 2;
  CHECK(record.at("passes").size() == 2);
  for (const Json& gpu : record.at("passes").at(0).at("gpus")) CHECK(gpu.at("link_sent_bytes") == 3 * kShard);
  for (const Json& gpu : record.at("passes").at(1).at("gpus"))
    CHECK(gpu.at("link_sent_bytes") == 11 * kShard);
  CHECK(record.at("passes").at(0).at("predicted").at("efficiency") > 0.9);
}

TEST_CASE("a slower link takes longer, and a machine without one is told to say how fast it is") {
  const auto seconds = [](const std::string& rate) {
    const ProgramResult result =
        run_program({"simulate", "--preset", "llama3-8b", "--gpus", "8", "--schedule", "all-gather",
                     "--link-rate", rate, "--json", "-"});
    return Json::parse(result.out).at("passes").at(0).at("predicted").at("time_s").get<double>();
  };
  CHECK(seconds("50GB") > seconds("400GB"));
  const ProgramResult refused =
      run_program({"simulate", "--preset", "llama3-8b", "--gpus", "2", "--machine", "a100-40gb"});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("--link-rate") != std::string::npos);
}

TEST_CASE("verify --gpus judges ranks that are threads") {
  const ProgramResult result =
      run_program({"verify",     "--gpus",   "3",        "--schedule", "striped",    "--heads", "4",
                   "--heads-kv", "2",        "--seqlen", "200",        "--head-dim", "32",      "--dtype",
                   "bf16",       "--causal", "--pass",   "fwd+bwd",    "--json",     "-"});
  CHECK(result.exit_code == 0);
  const Json record = Json::parse(result.out);
  CHECK(record.at("passed") == true);
  CHECK(record.at("error").size() == 5);
  for (const Json& pass : record.at("passes")) {
    for (const Json& gpu : pass.at("gpus"))
      CHECK(gpu.at("link_sent_bytes") == gpu.at("closed_form").at("sent_bytes"));
  }
}

TEST_CASE("what several GPUs cannot share is bad input; schedules are listed") {
  const auto refused = [](std::vector<std::string> command, const std::string& word) {
    const ProgramResult result = run_program(command);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(word) != std::string::npos);
    CHECK(result.out.empty());
  };
  refused({"verify", "--gpus", "3", "--schedule", "ulysses", "--heads", "4"}, "heads = 4");
  refused({"simulate", "--gpus", "3", "--schedule", "ulisses"}, "did you mean ulysses");
  refused({"simulate", "--gpus", "300"}, "gpus = 300");
  refused({"simulate", "--schedule", "ring"}, "--gpus");
  refused({"simulate", "--gpus", "2", "--kernel", "cpu:flash2"}, "--kernel");
  refused({"verify", "--gpus", "2", "--kernel", "cpu:standard"}, "kernel = cpu:standard");
  refused({"verify", "--gpus", "2", "--quick"}, "--quick");
  CHECK(run_program({"list", "schedules"}).out.find("zigzag") != std::string::npos);
}

}  // namespace
}  // namespace tilescope::testing
