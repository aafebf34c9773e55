// SPDX-License-Identifier: Apache-2.0
// `tilescope profile -- COMMAND`, run as a user runs it on a machine that may have no device.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/cli/profile/profile.hpp"
#include "analysis/model/machine/machine.hpp"
#include "tests/cli/any_driver.hpp"
#include "tests/cli/program.hpp"
#include "tests/cli/run_program.hpp"
#include "tests/paths.hpp"

namespace cli = tilescope::cli;
using namespace tilescope::testing;

namespace {

ProgramResult profile(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "profile");
  return run_program(arguments);
}

/// A build without CUPTI's headers, or with a sanitizer, cannot inject; it must say so with exit code 3.
bool cannot_inject() {
  const ProgramResult result = profile({"--", "true"});
  if (result.exit_code != 3) return false;
  MESSAGE("skipped: ", result.err);
  return true;
}

}  // namespace

TEST_CASE("profile refuses what it cannot understand before it runs anything") {
  const struct {
    std::vector<std::string> arguments;
    const char* said;
  } cases[] = {
      {{}, "COMMAND"},
      {{"--kernel-filter", "(", "--", "touch", "ran"}, "--kernel-filter"},
      {{"--nvtx", "(", "--", "touch", "ran"}, "--nvtx"},
      {{"--nvtx", "step", "--time", "--", "touch", "ran"}, "--time"},
      {{"--l2", "hot", "--", "touch", "ran"}, "cold or warm"},
      {{"--timeline", "/nonexistent/x.svg", "--", "touch", "ran"}, "/nonexistent/x.svg"},
      {{"--timeline", "x.svg", "--interval", "0", "--", "touch", "ran"}, "--interval"},
      {{"--count", "0", "--", "touch", "ran"}, "--count"},
      {{"--skip", "-1", "--", "touch", "ran"}, "--skip"},
      {{"--timeout", "-1", "--", "touch", "ran"}, "--time"},
      {{"--timeout", "99999999999999999", "--", "touch", "ran"},
       "--timeout = 99999999999999999: must lie in 0 ..."},
      {{"--launches", "5", "--", "touch", "ran"}, "--launches = 5: must stand with --kernel, not"},
      {{"--launches", "1", "--", "touch", "ran"}, "--launches = 1"},
      {{"--launches", "5"}, "--launches = 5: must stand with --kernel, and"},
      {{"--launches", "5", "--self-test"}, "--launches = 5"},
      {{"--placements", "5", "--", "touch", "ran"}, "--placements = 5: must stand with --kernel, not"},
      {{"--placements", "5", "--self-test"}, "--placements = 5"},
      {{"--json", "/nonexistent/x", "--", "touch", "ran"}, "/nonexistent/x"},
      {{"--bogus", "--", "touch", "ran"}, "--bogus"},
  };
  for (const auto& bad : cases) {
    CAPTURE(bad.said);
    const TemporaryFolder folder;
    std::vector<std::string> arguments = bad.arguments;
    arguments.insert(arguments.begin(), "profile");
    const ProgramResult result = run_program(arguments, folder.path());
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(bad.said) != std::string::npos);
    CHECK(folder.empty());
  }
}

TEST_CASE("profile --kernel refuses what no kernel could run, and says what the machine lacks for the rest") {
  const struct {
    std::vector<std::string> arguments;
    const char* said;
  } cases[] = {
      {{"--kernel", "cpu:flash2"}, "gpu:flash2-simt"},
      {{"--kernel", "gpu:flash2-mma", "--seqlen", "0"}, "seqlen"},
      {{"--kernel", "gpu:flash2-mma", "--dtype", "fp32"}, "gpu:flash2-mma"},
      {{"--kernel", "gpu:flash2-simt", "--l2", "hot"}, "cold or warm"},
      {{"--kernel", "gpu:flash2-simt", "--", "true"}, "COMMAND"},
      {{"--kernel", "gpu:flash2-simt", "--launches", "0"}, "--launches = 0: must lie in 1 ... 100"},
      {{"--kernel", "gpu:flash2-simt", "--launches", "101"}, "--launches = 101: must lie in 1 ... 100"},
      {{"--kernel", "gpu:flash2-simt", "--launches", "two"}, "--launches = 'two': must be an integer"},
      {{"--kernel", "gpu:flash2-simt", "--launches", "5", "--", "true"}, "not with a command"},
      {{"--kernel", "gpu:flash2-simt", "--launches", "5", "--timeline", "x.svg"}, "without --timeline"},
      {{"--kernel", "gpu:flash2-simt", "--placements", "0"}, "--placements = 0: must lie in 1 ... 100"},
      {{"--kernel", "gpu:flash2-simt", "--placements", "101"}, "--placements = 101: must lie in 1 ... 100"},
      {{"--kernel", "gpu:flash2-simt", "--placements", "5", "--", "true"}, "not with a command"},
      {{"--kernel", "gpu:flash2-simt", "--placements", "5", "--timeline", "x.svg"}, "without --timeline"},
      {{"--kernel", "gpu:flash2-simt", "--placements", "5", "--launches", "5"}, "excludes --placements"},
      {{"--cta-progress", "--", "true"}, "--cta-progress must stand with --kernel"},
      {{"--kernel", "gpu:flash2-simt", "--cta-progress", "--launches", "5"}, "and without --launches"},
      {{"--kernel", "gpu:flash2-simt", "--cta-progress", "--placements", "5"},
       "and without --launches, --placements"},
      {{"--kernel", "gpu:flash2-simt", "--sweep", "seqlen"}, "AXIS=VALUES"},
      {{"--kernel", "gpu:flash2-simt", "--sweep", "seqln=512"}, "seqlen"},
      {{"--kernel", "gpu:flash2-simt", "--sweep", "seqlen=512..64"}, "512..64"},
      {{"--kernel", "gpu:flash2-simt", "--sweep", "heads=6", "--sweep", "group=4"}, "divide"},
      {{"--sweep", "seqlen=512..2048"}, "--kernel"},
  };
  for (const auto& bad : cases) {
    CAPTURE(bad.said);
    const ProgramResult result = profile(bad.arguments);
    CHECK(result.exit_code == 2);
    CHECK(result.err.find(bad.said) != std::string::npos);
  }
  const ProgramResult lacking = profile({"--kernel", "gpu:flash2-simt", "--sweep", "seqlen=64..128"});
  if (lacking.exit_code == 0) return;  // a device and its counters are here
  CHECK(lacking.exit_code == 3);
  CHECK(lacking.err.find("gpu:flash2-simt") != std::string::npos);
}

TEST_CASE("a sweep of kernels is planned without what is refused, where all is, the first is thrown") {
  const tilescope::Machine machine = tilescope::load_machine("h200");
  const auto planned = [&machine](std::vector<std::string> words) {
    cli::ProfileKernelOptions options;
    CLI::App app;
    options.add_to(app);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return cli::plan_jobs(options, machine);
  };
  const auto plan = planned({"--kernel", "gpu:flash3", "--heads", "4", "--seqlen", "256", "--dtype", "fp16",
                             "--pass", "fwd+bwd", "--sweep", "heads_kv=3,4", "--sweep",
                             "backward=single-launch,split,fused", "--sweep", "head_dim=128,320"});
  std::size_t directions = 0;
  for (const cli::Job& job : plan.jobs) directions += job.directions.size();
  CAPTURE(plan.refusals.text(directions));
  CHECK(directions + plan.refusals.lines().size() == 18);
  CHECK(contains(plan.refusals.text(directions), "heads_kv = 3: must divide heads = 4"));
  CHECK(contains(plan.refusals.text(directions), "head_dim 256 and below, not 320"));
  CHECK_THROWS_AS(planned({"--kernel", "gpu:flash3", "--sweep", "head_dim=320,384"}), tilescope::BadInput);
}

TEST_CASE("a timeline is plotted from its record") {
  const TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path().string() + "/" + name) << text;
    return folder.path().string() + "/" + name;
  };
  const std::string head =
      R"({"schema": "tilescope.timeline/1", "argv": [], "when": "", "machine": {"name": "G", "chip": "C", "driver": ""},
    "interval_s": 0.001, "overflowed": false, "samples": {"start_s": [0], "length_s": [0.001],
    "dram_read_bytes": [1], "dram_write_bytes": [2], "dram_read_share": [0], "dram_write_share": [0],
    "tensor_share": [0], "sm_active_share": )";
  const std::string plot = folder.path().string() + "/x.svg";
  const auto plotted = [&](const std::string& record) {
    return profile({"--timeline", plot, "--samples", record});
  };
  const ProgramResult idle = plotted(write("idle.json", head + "[0]}}"));
  CHECK(idle.exit_code == 0);
  CHECK(idle.out.find("no plot") != std::string::npos);
  const ProgramResult busy = plotted(write("busy.json", head + "[0.5]}}"));
  CHECK(busy.exit_code == 0);
  CHECK(std::ifstream(plot).good());
  CHECK(plotted(write("short.json", head + "[]}}")).exit_code == 2);
  CHECK(plotted(write("other.json", R"({"schema": "tilescope.run/1"})")).exit_code == 2);
  CHECK(plotted(write("broken.json", "{")).exit_code == 2);
  CHECK(plotted("/nonexistent/x.json").exit_code == 2);
  CHECK(profile({"--samples", "x.json"}).exit_code == 2);
}

TEST_CASE("ceilings make a machine of their record") {
  const TemporaryFolder folder;
  const std::string record = TILESCOPE_SOURCE_DIR "/reports/profiler/h200-ceilings.json.gz";
  const std::string machine = folder.path().string() + "/m.json";
  CHECK(run_program({"ceilings", "--from", record, "--out", machine}).exit_code == 0);
  const auto parsed = [](const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); };
  const auto made = parsed(machine),
             shipped = parsed(TILESCOPE_SOURCE_DIR "/analysis/model/machine/h200-measured.json");
  CHECK(made == shipped);
  CHECK(run_program({"ceilings", "--from", TILESCOPE_SOURCE_DIR "/reports/profiler/h200-self-test.json.gz"})
            .exit_code == 2);
}

TEST_CASE("without a driver a command is not run, and told where it could be counted") {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) return;
  const TemporaryFolder folder;
  const ProgramResult result =
      run_program({"profile", "--json", "x.json", "--", "touch", "ran"}, folder.path());
  CHECK(result.exit_code == 3);
  CHECK(folder.empty());
  {
    const AnyDriver driver;
    if (cannot_inject()) return;
  }
  CHECK(result.err.find("no NVIDIA driver on this machine") != std::string::npos);
  CHECK(result.err.find("no kernel of touch could be counted: it was not run") != std::string::npos);
}

TEST_CASE("profile names the nearest of a mistyped metric") {
  const AnyDriver driver;
  if (cannot_inject()) return;
  const ProgramResult result = profile({"--metrics", "traffic,trafic", "--", "true"});
  if (result.exit_code == 1) {
    MESSAGE("skipped: no libcupti to ask");
    return;
  }
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("did you mean traffic?") != std::string::npos);
}

TEST_CASE("profile hands the command its arguments and streams, and passes on its exit code") {
  const AnyDriver driver;
  if (cannot_inject()) return;
  CHECK(profile({"--", "sh", "-c", "exit 7"}).exit_code == 7);
  const ProgramResult killed = profile({"--", "sh", "-c", "kill -9 $$"});
  CHECK(killed.exit_code == 128 + 9);
  CHECK(killed.out.find("signal 9") != std::string::npos);
  const ProgramResult result = profile({"--", "echo", "list", "--metrics", "x"});
  CHECK(result.out.starts_with("list --metrics x\n"));
  const ProgramResult both = profile({"--json", "-", "--quiet", "--", "echo", "hello"});
  CHECK(nlohmann::json::parse(both.out)["schema"] == "tilescope.kernels/1");
  CHECK(both.err.find("hello") != std::string::npos);
  const ProgramResult missing = profile({"--", "no-such-command"});
  CHECK(missing.exit_code == 2);
  CHECK(missing.err.find("no-such-command") != std::string::npos);
}

TEST_CASE("a command without kernels is no success, and its record says why it is empty") {
  const AnyDriver driver;
  if (cannot_inject()) return;
  const ProgramResult result = profile({"--quiet", "--json", "-", "--", "true"});
  CHECK(result.exit_code == 1);
  CHECK(result.err.find("no kernel was measured: the command used no CUDA") != std::string::npos);
  const auto record = nlohmann::json::parse(result.out);
  CHECK(record["schema"] == "tilescope.kernels/1");
  CHECK(record["kernels"].empty());
  CHECK(record["complete"] == true);
  CHECK(record["messages"].size() == 1);
  const ProgramResult shown = profile({"--", "true"});  // which says it once
  CHECK(shown.err.find("the command used no CUDA") != std::string::npos);
  CHECK(shown.out.find("the command used no CUDA") == std::string::npos);
}

TEST_CASE("the committed comparisons with Nsight Compute are what their records say") {
  const std::string folder = TILESCOPE_SOURCE_DIR "/reports/profiler/";
  const struct {
    const char *page, *records, *tables;
    int ours, ncus;
  } comparisons[] = {{"README.md", "h200-rounds", ".csv", 4, 3},
                     {"comparisons.md", "h200-small", ".csv.gz", 2, 2},
                     {"comparisons.md", "h200-own", ".csv.gz", 2, 2}};
  for (const auto& comparison : comparisons) {
    CAPTURE(comparison.records);
    std::ostringstream page;
    page << std::ifstream(folder + comparison.page).rdbuf();
    const std::string stem = folder + comparison.records;
    std::vector<std::string> arguments;
    for (int run = 1; run <= comparison.ours; ++run) {
      arguments.insert(arguments.end(), {"--compare", stem + "-" + std::to_string(run) + ".json.gz"});
    }
    for (int run = 1; run <= comparison.ncus; ++run) {
      arguments.insert(arguments.end(), {"--ncu", stem + "-ncu-" + std::to_string(run) + comparison.tables});
    }
    const ProgramResult table = profile(arguments);
    CHECK(table.exit_code == 0);
    CHECK(table.out.size() > 1000);
    CHECK(page.str().find(table.out) != std::string::npos);
  }
  const ProgramResult other =
      profile({"--compare", folder + "h200-self-test.json.gz", "--ncu", folder + "h200-rounds-ncu-1.csv"});
  CHECK(other.exit_code == 2);
  CHECK(other.err.find("tilescope.self-test/1") != std::string::npos);
  CHECK(profile({"--compare", folder + "h200-traffic.json.gz"}).exit_code == 2);
}
