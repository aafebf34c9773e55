// SPDX-License-Identifier: Apache-2.0
// What a terminal gets and a pipe does not, tables that fit it, and a disk that is full.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "analysis/cli/expected_time.hpp"
#include "analysis/records/run_record.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

std::string written_to(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Output of the program on a pseudo-terminal, with `environment` before it; nothing where `script` is
/// missing.
std::string on_terminal(const std::string& environment, const std::string& arguments) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out").string();
  const std::string command = environment + " script -qec '" TILESCOPE_PROGRAM " " + arguments +
                              "' /dev/null >" + out + " 2>&1 </dev/null";
  if (std::system("command -v script >/dev/null 2>&1") != 0) return "";
  CHECK(std::system(command.c_str()) == 0);
  return written_to(out);
}

/// Exit code of the program where no file may grow beyond a kilobyte, which clang's OpenMP needs, as on a
/// full disk; what it says goes to `said`.
int on_full_disk(const std::string& arguments, const std::filesystem::path& folder, std::string& said) {
  const std::string out = (folder.parent_path() / (folder.filename().string() + ".said")).string();
  const std::string inner = "cd " + folder.string() +
                            "; (trap \"\" XFSZ; ulimit -f 1; exec " TILESCOPE_PROGRAM " " + arguments +
                            ") 2>&1 | cat >" + out + "; exit ${PIPESTATUS[0]}";
  const int code = std::system(("bash -c '" + inner + "'").c_str());
  said = written_to(out);
  std::filesystem::remove(out);
  return WEXITSTATUS(code);
}

}  // namespace

TEST_CASE("colour only on a terminal, and never under NO_COLOR") {
  const std::string verify = "verify --preset small --kernel cpu:flash2";
  CHECK(run_program({"verify", "--preset", "small", "--kernel", "cpu:flash2"}).out.find('\033') ==
        std::string::npos);
  const std::string coloured = on_terminal("NO_COLOR= TERM=xterm", verify);
  if (coloured.empty()) {
    MESSAGE("skipped: no script(1)");
    return;
  }
  CHECK(coloured.find("\033[32mok\033[0m") != std::string::npos);
  const TemporaryFolder folder;
  for (const auto& [name, tile] : {std::pair("a.json", "64x64"), {"b.json", "128x64"}}) {
    CHECK(
        run_program({"simulate", "--kernel", "cpu:flash2", "--seqlen", "512", "--tile", tile, "--json", name},
                    folder.path())
            .exit_code == 0);
  }
  const std::string in = folder.path().string();
  const std::string gain = on_terminal("NO_COLOR= TERM=xterm", "diff " + in + "/a.json " + in + "/b.json");
  CHECK(gain.find("  \033[32mgain\033[0m") != std::string::npos);
  CHECK(on_terminal("NO_COLOR=1 TERM=xterm", verify).find("\033[3") == std::string::npos);
  CHECK(on_terminal("NO_COLOR= TERM=dumb", verify).find("\033[3") == std::string::npos);
}

TEST_CASE("work of more than a second says on a terminal how long it has been at it, and in a pipe nothing") {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "results").string();
  const std::string run = "run --seqlen 5k --heads 8 --dtype bf16 --pass fwd+bwd --out " + out;
  const std::string seen = on_terminal("OMP_NUM_THREADS=1", run);
  if (seen.empty()) return;  // no script(1)
  CHECK(seen.find("cpu:flash2 on B1 H8 N5120 D64 bf16, 1 s") != std::string::npos);
  CHECK(run_program({"run", "--seqlen", "64", "--out", out}).err.empty());
}

TEST_CASE("a replay of minutes is announced before it begins, and an interrupted run leaves no folder") {
  const TemporaryFolder folder;
  const std::string said = (folder.path() / "said").string();
  const auto cut_short = [](const std::string& command) {
    CHECK(WEXITSTATUS(std::system(("timeout 1 " TILESCOPE_PROGRAM " " + command).c_str())) == 124);
  };
  cut_short("simulate --seqlen 1M --heads 8 --head-dim 128 >" + said);
  CHECK(written_to(said).find("the replay takes about ") != std::string::npos);
  cut_short("run --seqlen 256k --heads 8 --quiet --out " + (folder.path() / "results").string());
  CHECK_FALSE(std::filesystem::exists(folder.path() / "results"));
}

TEST_CASE("what work takes is told for cores as busy as they are") {
  CHECK(cli::seconds_now(0.5, 1) == 0.5);  // short: nobody is told
  std::atomic<bool> done = false;
  std::vector<std::jthread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency(); ++i) {
    others.emplace_back([&done] {
      while (!done) {
      }
    });
  }
  const double share = cli::share_of_cores(1), seconds = cli::seconds_now(100, 1);
  done = true;
  CHECK(share > 0);
  CHECK(share < 0.9);  // half of a core, or more by chance
  CHECK(seconds > 100);
}

TEST_CASE("work that takes longer than was said is told by what is done of it") {
  CHECK(cli::longer_than_said(30, 60, 0.5) == 120);
  CHECK_FALSE(cli::longer_than_said(30, 20, 0.5));  // about as said
  CHECK_FALSE(cli::longer_than_said(30, 60, 0.2));  // too little is done to tell
}

TEST_CASE(
    "long work says how long it takes before it begins, in a pipe too, and Ctrl-C is answered with a line") {
  const TemporaryFolder folder;
  // Interrupted once it has said so; a shell starts in the background what ignores the terminal's interrupt.
  const auto interrupted = [&folder](const std::string& arguments) {
    const std::string said = (folder.path() / "said").string();
    const std::string shell =
        ": >" + said + "; OMP_NUM_THREADS=1 env --default-signal=INT " TILESCOPE_PROGRAM " " + arguments +
        " >" + said + " 2>&1 & for i in $(seq 600); do grep -q \"takes about\" " + said +
        " && break; sleep 0.1; done; kill -INT $!; wait $!";
    CHECK(WEXITSTATUS(std::system(("bash -c '" + shell + "'").c_str())) == 128 + SIGINT);
    return written_to(said);
  };
  const std::string results = (folder.path() / "results").string();
  for (const std::string& arguments :
       {"run --seqlen 128k --heads 64 --head-dim 64 --out " + results,
        std::string("verify --kernel cpu:flash2 --seqlen 5k --heads 8 --pass fwd+bwd"),
        std::string("simulate --seqlen 1M --heads 8 --head-dim 128"),
        std::string("simulate --seqlen 128k --heads 64 --head-dim 128 --tune-bytes"),
        std::string("simulate --seqlen 128k --heads 64 --head-dim 128 --advise")}) {
    const std::string said = interrupted(arguments);
    CAPTURE(arguments);
    CAPTURE(said);
    CHECK(said.find(" takes about ") != std::string::npos);
    CHECK(said.find("tilescope: interrupted; no file is left half written\n") != std::string::npos);
  }
  CHECK_FALSE(std::filesystem::exists(results));
  for (const char* long_samples : {"bench --kernel cpu:flash2 --seqlen 256 --heads 2 --repetitions 100",
                                   "bench --kernel cpu:flash2 --seqlen 32k --heads 2 --repetitions 1",
                                   "bench --kernel cpu:standard --seqlen 8k --heads 1 --pass fwd "
                                   "--repetitions 200 --seconds 0.001"}) {
    const std::string said = interrupted(long_samples);
    CAPTURE(said);
    CHECK(said.find("bench takes about ") == 0);
    CHECK(said.find("tilescope: interrupted") != std::string::npos);
  }
}

TEST_CASE("an interrupted bench keeps what is whole, and no reader takes its record for that of all") {
  struct Stop {
    const char* name;
    int number;
    const char* seen;  // in the log, before the signal is sent
  };
  constexpr const char* kSeveral = "timing [0-9]*[0-9][0-9]/";
  for (const Stop& stop :
       {Stop{"INT", SIGINT, kSeveral}, Stop{"TERM", SIGTERM, kSeveral}, Stop{"INT", SIGINT, "timing 1/"}}) {
    CAPTURE(stop.name);
    CAPTURE(stop.seen);
    const TemporaryFolder folder;
    const std::string at = folder.path().string() + "/", log = at + "log";
    const std::string shell = std::string(": >") + log +
                              "; env --default-signal=INT " TILESCOPE_PROGRAM
                              " bench --heads 1 --head-dim 8 --sweep seqlen=8..128 --sweep causal=no,yes "
                              "--seconds 0.01 --log-level info"
                              " --log-file " +
                              log + " --json " + at + "part.json --csv " + at + "part.csv --plot " + at +
                              "part.svg >" + at + "said 2>&1 & for i in $(seq 600); do grep -q \"" +
                              stop.seen + "\" " + log + " && break; sleep 0.1; done; kill -" + stop.name +
                              " $!; wait $!";
    CHECK(WEXITSTATUS(std::system(("bash -c '" + shell + "'").c_str())) == 128 + stop.number);
    const std::string said = written_to(at + "said");
    CAPTURE(said);
    if (stop.seen != kSeveral) {
      CHECK(contains(said, "nothing is written"));
      CHECK_FALSE(std::filesystem::exists(at + "part.json"));
      continue;
    }
    const RunRecord record = read_run_record(at + "part.json");
    std::size_t passes = 0;
    for (const RunEntry& run : record.runs) {
      passes += run.passes.size();
      for (const PassRecord& pass : run.passes) CHECK(pass.time->samples == 5);
    }
    CHECK(passes > 0);
    CHECK_FALSE(record.missing.empty());
    CHECK(passes + record.missing.size() == 20);  // five lengths, two masks, two directions
    CHECK(contains(said, std::to_string(record.missing.size()) + " measurements left out"));
    CHECK(record.missing.back() == "cpu:flash2, backward, B1 H1 N128 D8 fp32 causal");
    CHECK(std::filesystem::exists(at + "part.csv"));
    CHECK_FALSE(std::filesystem::exists(at + "part.svg"));
    const ProgramResult diff = run_program({"diff", at + "part.json", at + "part.json"});
    CHECK(diff.exit_code == 2);
    CHECK(contains(diff.err, record.missing.front()));
    CHECK(run_program({"report", at + "part.json", "--out", at + "report"}).exit_code == 0);
    CHECK(contains(written_to(at + "report/report.md"), "Are the records whole?"));
  }
}

TEST_CASE("tables fit 100 columns") {
  const std::vector<std::vector<std::string>> commands = {
      {"simulate", "--preset", "llama3-8b", "--seqlen", "1k", "--pass", "fwd+bwd"},
      {"simulate", "--seqlen", "512", "--dtype", "fp16", "--pass", "fwd+bwd", "--kernel", "cpu:standard",
       "--kernel", "gpu:flash2-mma", "--machine", "h100-sxm"},
      {"simulate", "--seqlen", "512", "--dtype", "fp16", "--pass", "fwd+bwd", "--machine",
       "h200-measured,a100-40gb"},
      {"simulate", "--sweep", "seqlen=256,512", "--kernel", "gpu:flash2-mma", "--pass", "fwd+bwd", "--order",
       "longest-first", "--causal", "--heads", "32", "--heads-kv", "8"},
      {"simulate", "--seqlen", "256", "--tune-bytes", "--kernel", "gpu:flash2-mma"},
      {"compare", "cpu:flash1", "cpu:flash2", "--seqlen", "512", "--pass", "fwd+bwd"},
      {"simulate", "--seqlen", "512", "--pass", "fwd+bwd", "--kernel", "cpu:standard", "--machine",
       "h100-sxm"},
      {"list"},
      {"list", "kernels"},
      {"list", "machines"},
      {"list", "metrics"},
      {"list", "models"},
      {"list", "counters"},
      {"list", "problems"},
      {"list", "studies"},
      {"list", "sweeps"}};
  for (const std::vector<std::string>& command : commands) {
    const ProgramResult result = run_program(command);
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) {
      CAPTURE(line);
      CHECK(line.size() <= 100);
    }
  }
}

TEST_CASE("sentences and folded tables fit a narrow terminal, tables use a wide one") {
  const auto on_columns = [](int columns, const std::string& arguments) {
    const std::string shell =
        "sh -c \"stty cols " + std::to_string(columns) + "; " TILESCOPE_PROGRAM " " + arguments + "\"";
    const TemporaryFolder folder;
    const std::string out = (folder.path() / "out").string();
    const std::string command = "script -qec '" + shell + "' /dev/null >" + out + " 2>/dev/null </dev/null";
    CHECK(std::system(command.c_str()) == 0);
    return written_to(out);
  };
  const auto longest = [](const std::string& text) {
    std::size_t most = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      most = std::max(most, line.size() - (line.ends_with('\r') ? 1 : 0));
    }
    return most;
  };
  if (std::system("command -v script >/dev/null && command -v stty >/dev/null") != 0) {
    MESSAGE("skipped: no script(1) or no stty(1)");
    return;
  }
  const std::string ranks = "simulate --gpus 4 --schedule ring --seqlen 16k --heads 8 --dtype fp16";
  for (const std::string& arguments : {ranks, std::string("help kernel"), std::string("list studies")}) {
    CAPTURE(arguments);
    CHECK(longest(on_columns(70, arguments)) <= 70);
    CHECK(longest(on_columns(100, arguments)) > 80);
    CHECK(longest(on_columns(100, arguments)) <= 100);
  }
  CHECK(longest(on_columns(200, ranks)) > 100);
  CHECK(longest(on_columns(200, "help kernel")) <= 100);
}

TEST_CASE("a full disk is the machine's lack, whatever option named the place, and leaves no folder") {
  const TemporaryFolder folder;
  std::string said;
  for (const char* arguments :
       {"run --seqlen 64 --out a/b", "list metrics --quiet --json x.json",
        "report " TILESCOPE_SOURCE_DIR "/reports/profiler/h200-ceilings.json.gz --out r"}) {
    CAPTURE(arguments);
    CHECK(on_full_disk(arguments, folder.path(), said) == 3);
    CAPTURE(said);
    CHECK(said.find("cannot be written") != std::string::npos);
    CHECK(folder.empty());
  }
  CHECK(run_program({"list", "problems", "--json", "-"}, folder.path(), "/dev/full").exit_code == 3);
}

}  // namespace tilescope::testing
