// SPDX-License-Identifier: Apache-2.0
// simulate and verify with --gpus, as a user runs them.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/records/distributed_record.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

using Json = nlohmann::json;

/// All words, a space between any two.
std::string unwrapped(const std::string& text) {
  std::istringstream words(text);
  std::string line;
  for (std::string word; words >> word;) line += (line.empty() ? "" : " ") + word;
  return line;
}

TEST_CASE("simulate --gpus prints and records link bytes, memory, balance and time of each GPU") {
  const std::vector<std::string> command = {"simulate",   "--preset", "llama3-8b", "--gpus", "4",
                                            "--schedule", "zigzag",   "--pass",    "fwd+bwd"};
  const ProgramResult table = run_program(command);
  CHECK(table.exit_code == 0);
  std::istringstream lines(table.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 100);
  const std::string text = unwrapped(table.out);
  for (const char* word : {"zigzag on 4 GPUs", "link sent", "25.17 MB", "forward", "backward", "predicted",
                           "lost", "merges and sums", "CTAs of gpu:flash3", "of mean work", "compute time",
                           "ends at", "balance of the work 100.0 %",
                           "exposed 9 us, in which the GPU that ends last has nothing to compute"}) {
    CAPTURE(word);
    CHECK(contains(text, word));
  }
  CHECK(contains(text,
                 "the link's bytes alone can be hidden from 1010 tokens a GPU on, here 2048; to begin their "
                 "transfers takes 42.00 us more"));
  std::vector<std::string> with_json = command;
  with_json.insert(with_json.end(), {"--json", "-"});
  const std::string written = run_program(with_json).out;
  CHECK(to_json_text(parse_distributed_record("simulated", written)) == written);
  const Json record = Json::parse(written);
  CHECK(record.at("schema") == "tilescope.distributed/1");
  constexpr std::int64_t kShard = 8192 / 4 * 8 * 2 * 128 * 2;
  const Json& passes = record.at("runs").at(0).at("passes");
  CHECK(passes.size() == 2);
  for (const Json& gpu : passes.at(0).at("gpus")) CHECK(gpu.at("link_sent_bytes") == 3 * kShard);
  for (const Json& gpu : passes.at(1).at("gpus")) CHECK(gpu.at("link_sent_bytes") == 11 * kShard);
  for (const Json& pass : passes) {
    const Json& predicted = pass.at("predicted");
    double lost = 0;
    for (const auto& [cause, seconds] : predicted.at("lost").items()) lost += seconds.get<double>();
    const double time = predicted.at("time_s"), alone = predicted.at("one_gpu_s");
    CHECK(lost == doctest::Approx(time - alone / 4));
    CHECK(predicted.at("efficiency") == doctest::Approx(alone / 4 / time));
  }
  // Merges, cut tiles and launches take a quarter of a forward pass of so few tokens, tails most of
  // what a backward one loses.
  CHECK(passes.at(0).at("predicted").at("efficiency") == doctest::Approx(0.737).epsilon(0.005));
  CHECK(passes.at(1).at("predicted").at("efficiency") > 0.4);
}

TEST_CASE("GPUs that have and do the same are one row, of many the busiest and the last are told") {
  const auto table_of = [](const char* gpus, const char* schedule) {
    return run_program({"simulate", "--heads", "32", "--seqlen", "64k", "--head-dim", "128", "--dtype",
                        "bf16", "--causal", "--gpus", gpus, "--schedule", schedule, "--pass", "fwd"})
        .out;
  };
  CHECK(table_of("4", "ulysses").find("\n  0..3 ") != std::string::npos);
  const std::string many = table_of("64", "zigzag");
  CHECK(many.find("\n  63 ") != std::string::npos);
  CHECK(many.find("\n  40 ") == std::string::npos);
}

TEST_CASE("simulate lays schedules and numbers of GPUs side by side, and says what cannot be split") {
  const std::vector<std::string> command = {"simulate",   "--preset",           "llama3-8b", "--gpus", "2,32",
                                            "--schedule", "all-gather,ulysses", "--pass",    "fwd"};
  const ProgramResult table = run_program(command);
  CHECK(table.exit_code == 0);
  CHECK(table.out.find("left out: ulysses on 32 GPUs: heads_kv = 8") != std::string::npos);
  std::vector<std::string> with_json = command;
  with_json.insert(with_json.end(), {"--json", "-"});
  const Json record = Json::parse(run_program(with_json).out);
  REQUIRE(record.at("runs").size() == 3);
  for (const Json& run : record.at("runs")) {
    const std::size_t listed = run.at("gpus") == 2 ? 2 : 1;  // of many, the one that sends most
    CHECK(run.at("passes").at(0).at("gpus").size() == listed);
  }
}

TEST_CASE("explain names the schedule behind the bytes of a link, also of a record of others") {
  const ProgramResult result = run_program(
      {"explain", "--gpus", "2", "--link-bytes", "33554432", "--preset", "llama3-8b", "--pass", "fwd"});
  CHECK(result.exit_code == 0);
  CHECK(result.out.find("by NCCL's protocol LL") != std::string::npos);
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "peers.json")
      << R"({"schema": "tilescope.distributed-peers/1", "torch": "2.11",
    "gpus": 2, "problem": {"heads": 32, "heads_kv": 8, "head_dim": 128}, "runs": [{"peer": "a ring",
    "tokens_a_gpu": 4096, "backward_link_sent_bytes": 83890000}]})";
  const ProgramResult others = run_program({"explain", "peers.json"}, folder.path());
  CHECK(others.exit_code == 0);
  CHECK(others.out.find("a ring") != std::string::npos);
  CHECK(others.out.find("zigzag or striped; dK and dV in fp32") != std::string::npos);
}

TEST_CASE("a slower link takes longer, and a machine without one is told to say how fast it is") {
  const auto seconds = [](const std::string& rate) {
    const ProgramResult result =
        run_program({"simulate", "--preset", "llama3-8b", "--gpus", "8", "--schedule", "all-gather",
                     "--link-rate", rate, "--json", "-"});
    return Json::parse(result.out)
        .at("runs")
        .at(0)
        .at("passes")
        .at(0)
        .at("predicted")
        .at("time_s")
        .get<double>();
  };
  CHECK(seconds("50GB") > seconds("400GB"));
  const ProgramResult refused =
      run_program({"simulate", "--preset", "llama3-8b", "--gpus", "2", "--machine", "a100-40gb"});
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("--link-rate") != std::string::npos);
}

TEST_CASE("verify --gpus judges ranks that are threads, one schedule after the other") {
  const ProgramResult result =
      run_program({"verify",   "--gpus",     "3",          "--schedule", "striped,all-gather",
                   "--heads",  "4",          "--heads-kv", "2",          "--seqlen",
                   "200",      "--head-dim", "32",         "--dtype",    "bf16",
                   "--causal", "--pass",     "fwd+bwd",    "--json",     "-"});
  CHECK(result.exit_code == 0);
  const Json record = Json::parse(result.out);
  CHECK(record.at("runs").size() == 2);
  for (const Json& run : record.at("runs")) {
    CHECK(run.at("passed") == true);
    CHECK(run.at("error").size() == 5);
    for (const Json& pass : run.at("passes")) {
      for (const Json& gpu : pass.at("gpus"))
        CHECK(gpu.at("link_sent_bytes") == gpu.at("closed_form").at("link_sent_bytes"));
    }
  }
  const DistributedRecord read = parse_distributed_record("verified", result.out);
  CHECK(to_json_text(read) == result.out);
  for (const DistributedRun& run : read.runs) {
    for (const DistributedPass& pass : run.passes) {
      REQUIRE(pass.gpus.size() == 3);
      for (const GpuRecord& gpu : pass.gpus) {
        REQUIRE(gpu.closed_form);
        CHECK(gpu.closed_form->sent_bytes == gpu.link.data.sent_bytes);
        CHECK(gpu.closed_form->received_bytes == gpu.link.data.received_bytes);
      }
    }
  }
}

TEST_CASE("run --gpus leaves what one kernel would, and several GPUs that are not there are said to lack") {
  const TemporaryFolder folder;
  const ProgramResult ran =
      run_program({"run", "--gpus", "3", "--schedule", "ring", "--heads", "2", "--seqlen", "60", "--head-dim",
                   "16", "--pass", "fwd+bwd", "--out", "o"},
                  folder.path());
  CHECK(ran.exit_code == 0);
  CHECK(ran.out.find("dv.npy") != std::string::npos);
  constexpr const char* kMoreThanAnywhere = "200";
  for (const char* command : {"verify", "bench", "profile"}) {
    const ProgramResult lacks = run_program({command, "--gpus", kMoreThanAnywhere, "--kernel",
                                             "gpu:flash2-mma", "--dtype", "bf16", "--seqlen", "2k"});
    CAPTURE(command);
    CAPTURE(lacks.err);
    CHECK(lacks.exit_code == 3);
    CHECK(lacks.out.empty());
  }
}

TEST_CASE("what several GPUs cannot share is bad input, schedules are listed") {
  const auto refused = [](std::vector<std::string> command, const std::string& word) {
    const ProgramResult result = run_program(command);
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(word) != std::string::npos);
    CHECK(result.out.empty());
  };
  refused({"verify", "--gpus", "3", "--schedule", "ulysses", "--heads", "4"}, "heads = 4");
  refused({"verify", "--gpus", "3", "--schedule", "ulysses", "--heads", "4"}, "zigzag and all-gather");
  refused({"verify", "--gpus", "4", "--seqlen", "5"}, "must be at least 8");
  refused({"verify", "--gpus", "2", "--processes"}, "whose ranks are threads");
  refused({"simulate", "--gpus", "3", "--schedule", "ulisses"}, "did you mean ulysses");
  refused({"simulate", "--gpus", "3000"}, "gpus = 3000");
  refused({"simulate", "--gpus", "2,x"}, "gpus = 'x'");
  refused({"verify", "--gpus", "2,4"}, "--gpus = 2,4");
  refused({"simulate", "--schedule", "ring"}, "--gpus");
  refused({"simulate", "--gpus", "2", "--kernel", "cpu:flash2"}, "--kernel");
  refused({"verify", "--gpus", "2", "--kernel", "cpu:standard"}, "kernel = cpu:standard");
  refused({"verify", "--gpus", "2", "--quick"}, "--quick");
  refused({"verify", "--gpus", "2", "--schedule", "ring,"}, "schedule = ''");
  refused({"verify", "--transport", "nccl"}, "--gpus");
  refused({"bench", "--gpus", "2", "--transport", "ncll"}, "did you mean nccl");
  refused({"bench", "--gpus", "2", "--kernel", "cpu:flash2"}, "kernel = cpu:flash2");
  refused({"bench", "--gpus", "2", "--schedule", "ulysses", "--heads", "3"}, "heads = 3");
  refused({"run", "--gpus", "2", "--schedule", "ring,zigzag", "--seqlen", "64", "--out", "o"}, "--schedule");
  refused({"explain", "--link-bytes", "1MB", "--preset", "llama3-8b"}, "--gpus");
  refused({"simulate", "--gpus", "2", "--flop-rate", "-1"}, "flop-rate");
  refused({"simulate", "--gpus", "2", "--flop-rate", "inf"}, "flop-rate");
  refused({"bench", "--processes"}, "--gpus");
  refused({"profile", "--gpus", "2", "--processes"}, "one process reads");
  refused({"run", "--gpus", "2", "--processes", "--seqlen", "64", "--out", "o"}, "one process writes");
  CHECK(run_program({"list", "schedules"}).out.find("zigzag") != std::string::npos);
}

}  // namespace
}  // namespace tilescope::testing
