// SPDX-License-Identifier: Apache-2.0
// `tilescope diff`, from outside: what it prints, its exit codes, and bad records.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "profiler/records/kernel_record.hpp"
#include "tests/cli/diff_records.hpp"
#include "tests/cli/program.hpp"

namespace tilescope::testing {
namespace {

struct Files {
  TemporaryFolder folder;
  std::string base = (folder.path() / "base.json").string();
  std::string now = (folder.path() / "now.json").string();

  Files(const RunRecord& old_record, const RunRecord& new_record) {
    write_run_record(old_record, base);
    write_run_record(new_record, now);
  }
};

}  // namespace

TEST_CASE("diff passes on equal records and fails on a regression beyond the budget") {
  const RunRecord old_record = record_of({run_of("gpu:a"), run_of("gpu:gone")});
  RunRecord new_record = record_of({run_of("gpu:a"), run_of("gpu:fresh")});
  const Files equal(old_record, old_record);
  const ProgramResult same = run_program({"diff", equal.base, equal.now});
  CHECK(same.exit_code == 0);
  CHECK(contains(same.out, "no regression"));

  new_record.runs[0].passes[0].simulated->dram_read_bytes += 20;
  const Files moved(old_record, new_record);
  const ProgramResult worse = run_program({"diff", moved.base, moved.now});
  CHECK(worse.exit_code == 1);
  CHECK(worse.err == "");
  for (const char* part :
       {"simulated.dram_read_bytes", "+2.00 %", "REGRESSION", "new   gpu:fresh", "gone  gpu:gone"}) {
    CAPTURE(part);
    CHECK(contains(worse.out, part));
  }
  const ProgramResult allowed =
      run_program({"diff", moved.base, moved.now, "--budget", "dram_read_bytes=2%", "--allow-gone"});
  CHECK(allowed.exit_code == 0);
  CHECK(contains(allowed.out, "simulated.dram_read_bytes"));
  CHECK_FALSE(contains(allowed.out, "REGRESSION"));

  const ProgramResult json = run_program({"diff", moved.base, moved.now, "--json", "-"});
  CHECK(json.exit_code == 1);
  const auto parsed = nlohmann::json::parse(json.out);
  CHECK(parsed.at("regressions") == 1);
  CHECK(parsed.at("runs")[0].at("changes")[0].at("new") == kBytes + 20);
}

TEST_CASE("a gate does not pass what it cannot judge") {
  const RunRecord old_record = record_of({run_of("gpu:a"), run_of("gpu:b")});
  const auto exit_code = [](const Files& files, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"diff", files.base, files.now});
    return run_program(more).exit_code;
  };
  RunRecord fewer = old_record;
  fewer.runs.pop_back();
  const Files lost_run(old_record, fewer);
  const ProgramResult gone = run_program({"diff", lost_run.base, lost_run.now});
  CHECK(gone.exit_code == 1);
  CHECK(contains(gone.out, "gone  gpu:b"));
  CHECK(contains(std::regex_replace(gone.out, std::regex("\n"), " "),
                 "what is gone cannot be judged (--allow-gone lets it pass)"));
  CHECK(exit_code(lost_run, {"--allow-gone"}) == 0);
  CHECK(exit_code(Files(fewer, old_record)) == 0);  // new is not gone

  RunRecord uncounted = old_record;
  uncounted.runs[0].passes[0].measured->dram_read_bytes.reset();
  const Files lost_metric(old_record, uncounted);
  CHECK(exit_code(lost_metric) == 1);
  CHECK(exit_code(lost_metric, {"--allow-gone"}) == 0);

  RunRecord other = old_record;
  for (RunEntry& run : other.runs) {
    for (PassRecord& pass : run.passes) pass.simulated->machine = "a100-80gb";
  }
  const Files elsewhere(old_record, other);
  CHECK(exit_code(elsewhere) == 1);
  CHECK(exit_code(elsewhere, {"--allow-gone", "--budget", "time=10%"}) == 0);
  check_refused({{"diff", elsewhere.base, elsewhere.now, "--allow-gone", "--budget", "simulated=5%"},
                 {"--budget = simulated=5%", "zero times", "simulated on h200, now on a100-80gb"}});
}

TEST_CASE("diff names what is new, tells a change once, marks gains, and judges what --only leaves") {
  const TemporaryFolder folder;
  const auto simulated = [&folder](const char* tile, const char* pass, const char* name) {
    REQUIRE(run_program({"simulate", "--kernel", "cpu:flash2", "--seqlen", "512", "--tile", tile, "--pass",
                         pass, "--json", name},
                        folder.path())
                .exit_code == 0);
  };
  simulated("128x64", "fwd", "base.json");
  simulated("64x64", "fwd", "worse.json");
  simulated("128x64", "fwd+bwd", "more.json");
  const auto diff = [&folder](std::vector<std::string> words) {
    words.insert(words.begin(), "diff");
    return run_program(words, folder.path());
  };
  const auto count = [](const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
    return found;
  };
  const ProgramResult worse = diff({"base.json", "worse.json"});
  CAPTURE(worse.out);
  CHECK(worse.exit_code == 1);
  CHECK(count(worse.out, "sm_l2_read_bytes") == 1);
  CHECK(contains(worse.out, "1 beyond the budget"));
  CHECK(contains(worse.out, "of TileScope's tile programs: no kernel ran."));
  const ProgramResult better = diff({"worse.json", "base.json"});
  CHECK(better.exit_code == 0);
  CHECK(count(better.out, "  gain\n") == 1);
  const ProgramResult more = diff({"base.json", "more.json"});
  CAPTURE(more.out);
  CHECK(more.exit_code == 0);
  CHECK(contains(more.out, "10 metrics  backward  new, judged by nothing\n"));
  CHECK(contains(more.out, "0 moved, 10 new, 0 gone: no regression"));
  CHECK(contains(diff({"more.json", "base.json"}).out, "10 metrics  backward  gone: no longer there\n"));
  const auto json = nlohmann::json::parse(diff({"base.json", "more.json", "--json", "-"}).out);
  CHECK(json.at("runs")[0].at("new").size() == 10);
  const ProgramResult only = diff({"base.json", "worse.json", "--only", "--budget", "dram_read_bytes=5%"});
  CHECK(only.exit_code == 0);
  CHECK(contains(only.out, "1 value compared, 0 moved"));
  check_refused({{"diff", "a", "b", "--only"}, {"--only must stand with --budget"}});
}

TEST_CASE("diff compares the kernels of a command over all their launches") {
  KernelMeasurement kernel;
  kernel.name = "void my_attention<128>(float*)";
  kernel.launch.grid = {8, 2, 1};
  kernel.measured = {{"sm_l2_read_bytes", 1e6}, {"dram_read_bytes", 4e5}};
  kernel.time = KernelTime{{2e-3}};
  KernelRecord base;
  base.kernels = {kernel, kernel};
  base.kernels[1].name = "gone_kernel";
  KernelRecord now = base;
  now.kernels[1].name = "fresh_kernel";
  now.kernels[0].measured["dram_read_bytes"] = 4.1e5;
  const TemporaryFolder folder;
  const std::string old_path = (folder.path() / "base.json").string();
  const std::string new_path = (folder.path() / "now.json").string();
  std::ofstream(old_path) << to_json_text(base);
  std::ofstream(new_path) << to_json_text(now);
  CHECK(run_program({"diff", old_path, new_path}).exit_code == 1);  // a kernel is gone
  const ProgramResult within = run_program({"diff", old_path, new_path, "--allow-gone"});
  CHECK(within.exit_code == 0);
  for (const char* part : {"void my_attention<128>(float*) [grid 8x2x1, block 1x1x1]\n", "+2.50 %",
                           "all launches", "new   fresh_kernel", "gone  gone_kernel"}) {
    CAPTURE(part);
    CHECK(contains(within.out, part));
  }
  CHECK(
      run_program({"diff", old_path, new_path, "--allow-gone", "--budget", "dram_read_bytes=2%"}).exit_code ==
      1);

  now.kernels.push_back(kernel);  // launched once more: twice the bytes, twice the time
  std::ofstream(new_path) << to_json_text(now);
  const ProgramResult twice = run_program({"diff", old_path, new_path});
  CHECK(twice.exit_code == 1);
  CHECK(contains(twice.out, "+100.00 %"));
  CHECK(contains(twice.out, "time.median_s"));

  const std::string runs = (folder.path() / "runs.json").string();
  write_run_record(record_of({run_of("gpu:a")}), runs);
  check_refused({{"diff", runs, new_path}, {"NEW", new_path, "same problem and kernel"}});
}

TEST_CASE("records that share no run are told apart by the fields of the nearest, with what compares them") {
  RunRecord paged = record_of({run_of("gpu:b"), run_of("gpu:a")});
  for (RunEntry& run : paged.runs) run.problem.page_size = 16;
  const Files files(record_of({run_of("gpu:a")}), paged);
  check_refused({{"diff", files.base, files.now},
                 {"page_size none, now 16. `tilescope report " + files.base + " " + files.now + "`"}});
}

TEST_CASE("with other tiles a run is held against the one on the same machine") {
  RunRecord base = record_of({run_of("gpu:a"), run_of("gpu:a")});
  base.runs[1].passes[0].simulated->machine = "a100-80gb";
  base.runs[1].passes[0].simulated->dram_read_bytes += 20;
  RunRecord now = base;
  for (RunEntry& run : now.runs) run.passes[0].tile.block_m *= 2;
  std::swap(now.runs[0], now.runs[1]);
  const Files files(base, now);
  const ProgramResult same = run_program({"diff", files.base, files.now});
  CHECK(same.exit_code == 0);
  CHECK(contains(same.out, "2 runs in both, 0 new, 0 gone"));
  CHECK(contains(same.out, " 0 moved"));
  now.runs[0].passes[0].simulated->dram_read_bytes -= 10;  // run 1 of the base
  const Files less(base, now);
  CHECK(contains(run_program({"diff", less.base, less.now}).out, "  simulated on a100-80gb"));

  now.runs[0].passes[0].simulated->machine = now.runs[1].passes[0].simulated->machine;
  const Files several(base, now);
  check_refused({{"diff", several.base, several.now}, {"several of each, on other tiles or machines"}});
}

TEST_CASE("diff refuses what it cannot compare") {
  const Files files(record_of({run_of("gpu:a")}), record_of({run_of("gpu:b")}));
  std::ofstream(files.folder.path() / "damaged.json") << "{\"schema\": \"tilescope.run/1\", \"runs\": [";
  std::ofstream(files.folder.path() / "other.json") << "{\"schema\": \"tilescope.run/9\"}";
  const std::string damaged = (files.folder.path() / "damaged.json").string();
  const std::string other = (files.folder.path() / "other.json").string();
  const BadCommand cases[] = {
      {{"diff"}, {"BASE is missing", "record"}},
      {{"diff", files.base}, {"NEW is missing", "record"}},
      {{"diff", files.base, files.now}, {"NEW", files.now, "same problem and kernel", files.base}},
      {{"diff", files.base, "/nonexistent.json"}, {"/nonexistent.json", "No such file"}},
      {{"diff", files.base, "/"}, {"/", "directory"}},
      {{"diff", damaged, files.now}, {damaged, "JSON"}},
      {{"diff", files.base, other}, {other, "schema", "tilescope.run/9", "tilescope.run/1"}},
      {{"diff", files.base, files.base, "--budget", "tiem=5%"}, {"--budget", "tiem", "did you mean time"}},
      {{"diff", files.base, files.base, "--budget", "time=inf%"}, {"--budget", "time=inf%", "finite"}},
      {{"diff", files.base, files.base, "--budget", "time=-5%"}, {"--budget", "time=-5%", "at least 0"}},
      {{"diff", files.base, files.base, files.base}, {"diff argument", files.base}},
  };
  for (const BadCommand& bad : cases) check_refused(bad);
}

}  // namespace tilescope::testing
