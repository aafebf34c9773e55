// SPDX-License-Identifier: Apache-2.0
// `tilescope emulate`, from outside: the example kernels, mutants of them, and what is refused.
#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "profiler/records/kernel_record.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

const std::string kExamples = TILESCOPE_SOURCE_DIR "/examples/emulate/";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The example's launch of one of its kernels.
std::string launch_of(const std::string& kernel) {
  return replaced(read_file(kExamples + "transpose.json"), "transpose_naive", kernel);
}

struct Emulation {
  const TemporaryFolder folder;
  std::string ptx = read_file(kExamples + "transpose.ptx");
  std::string launch = launch_of("transpose_tiled");
  std::vector<std::string> more = {};

  ProgramResult run() const {
    std::ofstream(folder.path() / "k.ptx") << ptx;
    std::ofstream(folder.path() / "launch.json") << launch;
    std::vector<std::string> arguments = {"emulate", "k.ptx", "--launch", "launch.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments, folder.path());
  }
  nlohmann::json verdict() {
    more.insert(more.end(), {"--races", "--verdict"});
    return nlohmann::json::parse(run().out);
  }
};

/// Whether a finding of the kind names the line.
bool found(const nlohmann::json& verdict, const std::string& kind, const std::string& place) {
  for (const auto& finding : verdict.at("findings")) {
    const auto places = finding.at("places").get<std::vector<std::string>>();
    if (finding.at("kind") == kind && std::find(places.begin(), places.end(), place) != places.end())
      return true;
  }
  return false;
}

}  // namespace

TEST_CASE("emulate: a right kernel has its bytes, and nothing is found") {
  Emulation emulation;
  emulation.more = {"--json", "r.json"};
  const ProgramResult result = emulation.run();
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "SM<->L2: 65.54 kB read, 65.54 kB written"));
  CHECK(contains(result.out, "1.00x the bytes cross SM<->L2"));
  CHECK(contains(result.out, "nothing found"));
  Emulation again;
  const nlohmann::json verdict = again.verdict();
  CHECK(verdict.at("races") == 0);
  CHECK(verdict.at("right").is_null());
  CHECK(verdict.at("bytes_over_must") == 1.0);
  CHECK(verdict.at("dram_bytes") == 2 * 128 * 128 * 4);
  CHECK(verdict.at("findings").empty());
}

TEST_CASE("emulate: mutants of a kernel are each named with their line") {
  SUBCASE("a missing barrier") {
    Emulation mutant;
    mutant.ptx = replaced(mutant.ptx, "bar.sync \t0;", "");
    const nlohmann::json verdict = mutant.verdict();
    CHECK(verdict.at("races") >= 1);
    const auto text = verdict.at("findings").at(0).at("text").get<std::string>();
    CHECK(contains(text, "byte 1600 of shared memory (byte 1600 of tile): thread"));
    CHECK(found(verdict, "race", "transpose.cu:18"));
    CHECK(found(verdict, "race", "transpose.cu:22"));
  }
  SUBCASE("a short buffer") {
    Emulation mutant;
    mutant.launch = replaced(mutant.launch, "\"out\", \"dtype\": \"float32\", \"shape\": [128, 128]",
                             "\"out\", \"dtype\": \"float32\", \"shape\": [127, 128]");
    const nlohmann::json verdict = mutant.verdict();
    CHECK(verdict.at("completed") == false);
    CHECK(verdict.at("out_of_bounds") == 1);
    CHECK(found(verdict, "out of bounds", "transpose.cu:22"));
    mutant.more = {"--json", "stopped.json", "--quiet"};
    CHECK(mutant.run().exit_code == 1);
    const ProgramResult explained =
        run_program({"explain", "stopped.json", "--seqlen", "64", "--head-dim", "64"}, mutant.folder.path());
    CHECK(explained.exit_code == 2);
    CHECK(
        contains(explained.err, "transpose_tiled: must have come to its end on the emulated device, where"));
    CHECK(contains(explained.err, "stopped: out of bounds, "));
  }
  SUBCASE("an index that is transposed") {
    Emulation mutant;
    mutant.launch = launch_of("transpose_naive");
    const nlohmann::json verdict = mutant.verdict();
    CHECK(found(verdict, "uncoalesced", "transpose.cu:10"));
    CHECK(verdict.at("bytes_over_must") == 4.5);
  }
  SUBCASE("a tile without its column of padding") {
    Emulation mutant;
    while (contains(mutant.ptx, ", 132,")) mutant.ptx = replaced(mutant.ptx, ", 132,", ", 128,");
    CHECK(found(mutant.verdict(), "bank conflicts", "transpose.cu:22"));
  }
}

TEST_CASE("emulate: results are held against what was expected") {
  const std::string add = replaced(launch_of("transpose_tiled"), "\"fill\": \"random\"", "\"fill\": 2");
  const auto expecting = [&](const std::string& value) {
    Emulation emulation;
    emulation.launch = replaced(add, "\"out\", \"dtype\": \"float32\",",
                                "\"out\", \"expect\": " + value + ", \"dtype\": \"float32\",");
    return emulation.run();
  };
  CHECK(expecting("2").exit_code == 0);
  const ProgramResult wrong = expecting("3");
  CHECK(wrong.exit_code == 1);
  CHECK(contains(wrong.out, "out: 16384 of 16384 elements wrong, the first at 0: 2 where 3 was expected"));
}

TEST_CASE("emulate: what an L2 cannot keep is replayed through its model, which is said") {
  const auto emulated = [](const std::string& columns) {
    Emulation emulation;
    for (const char* count : {"[4, 4]", "[128, 128]", "[128, 128]", "128}"}) {
      const bool is_grid = count == std::string("[4, 4]");
      const std::string n = std::to_string(is_grid ? std::stoi(columns) / 32 : std::stoi(columns));
      const std::string grown = count[0] == '[' ? "[" + n + ",  " + n + "]" : n + "}";
      emulation.launch = replaced(emulation.launch, count, grown);
    }
    emulation.more = {"--json", "r.json", "--quiet"};
    CHECK(emulation.run().exit_code == 0);
    return parse_kernel_record("r.json", read_file(emulation.folder.path() / "r.json"));
  };
  const auto is_told = [](const KernelRecord& record) {
    return std::any_of(record.messages.begin(), record.messages.end(), [](const std::string& message) {
      return contains(message, "from DRAM") && contains(message, "modelled: ");
    });
  };
  const KernelRecord kept = emulated("256"), beyond = emulated("2112");
  CHECK_FALSE(is_told(kept));
  CHECK(kept.kernels.at(0).measured.at("dram_read_bytes") == 256 * 256 * 4);
  CHECK(is_told(beyond));
  // Each sector is read and written once: the L2 has nothing to fetch again.
  CHECK(beyond.kernels.at(0).measured.at("dram_read_bytes") == 2112 * 2112 * 4);
  CHECK(beyond.kernels.at(0).measured.at("dram_write_bytes") == 2112 * 2112 * 4);
}

TEST_CASE("emulate: the record is one of kernels, which report, diff and explain take") {
  Emulation emulation;
  emulation.launch = launch_of("transpose_naive");
  emulation.more = {"--json", "r.json", "--quiet"};
  CHECK(emulation.run().exit_code == 0);
  const auto at = [&](std::vector<std::string> arguments) {
    return run_program(arguments, emulation.folder.path());
  };
  const std::string text = read_file(emulation.folder.path() / "r.json");
  const KernelRecord record = parse_kernel_record("r.json", text);
  CHECK(to_json_text(record) == text);
  CHECK(record.collections.at(0).replay == "emulated");
  REQUIRE(record.kernels.at(0).emulated);
  CHECK(record.kernels[0].emulated->lines.at(0).file == "transpose.cu");

  CHECK(at({"report", "r.json", "--out", "pages"}).exit_code == 0);
  const std::string page = read_file(emulation.folder.path() / "pages/report.md");
  CHECK(contains(page, "\nAn emulated device ("));
  CHECK(contains(page, "| `transpose.cu:10` | 65.54 kB | 524.3 kB | 18.0 | 458.8 kB |"));
  CHECK(contains(page, "`uncoalesced at transpose.cu:10: 18.0 sectors a request where 4.0 suffice"));
  CHECK(at({"diff", "r.json", "r.json", "--budget", "sm_l2_read_bytes=0.5%"}).exit_code == 0);
  CHECK(at({"explain", "r.json", "--seqlen", "64", "--head-dim", "64", "--dtype", "fp16"}).exit_code == 0);

  Emulation less;  // the tiled kernel under the naive one's name writes an eighth of its bytes
  less.more = {"--json", "t.json", "--quiet"};
  CHECK(less.run().exit_code == 0);
  std::ofstream(emulation.folder.path() / "base.json")
      << replaced(read_file(less.folder.path() / "t.json"), "\"name\": \"transpose_tiled\"",
                  "\"name\": \"transpose_naive\"");
  CHECK(at({"diff", "base.json", "r.json", "--budget", "sm_l2_write_bytes=0.5%"}).exit_code == 1);
}

TEST_CASE("emulate: ptxas says registers, spills and what it made of accesses, where it is") {
  Emulation emulation;
  emulation.more = {"--json", "r.json"};
  const std::filesystem::path ptxas = emulation.folder.path() / "ptxas";
  std::ofstream(ptxas) << "#!/bin/sh\nfor name in transpose_naive transpose_tiled; do cat >&2 <<END\n"
                          "ptxas info    : Compiling entry function '$name' for 'sm_90'\n"
                          "    24 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads\n"
                          "ptxas info    : Used ${#name}1 registers\nEND\ndone\n";
  const std::filesystem::path disassembler = emulation.folder.path() / "cuobjdump";
  std::ofstream(disassembler)
      << "#!/bin/sh\nprintf '\\t\\tFunction : transpose_tiled\\n'\n"
         "for i in 1 2 3; do echo '        /*0040*/              @!P0 LDG.E R2, [R2.64] ;'; done\n"
         "echo '        /*0050*/                   STG.E [R4.64], R2 ;'\n";
  for (const auto& program : {ptxas, disassembler})
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  setenv("PATH", (emulation.folder.path().string() + ":" + path).c_str(), 1);
  const ProgramResult result = emulation.run();
  setenv("PATH", path.c_str(), 1);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  std::istringstream lines(result.out);  // wherever the sentence is folded
  std::string words;
  for (std::string word; lines >> word;) words += word + " ";
  CHECK(contains(words,
                 "spills: ptxas has a thread store 20 B and load 28 B where registers do not suffice: 81.92 "
                 "kB stored and 114.7 kB loaded"));
  CHECK(contains(result.out, "warning: ptxas makes 3 loads, 1 store of 5 loads, 5 stores in the PTX's code"));
  const auto record = nlohmann::json::parse(read_file(emulation.folder.path() / "r.json"));
  CHECK(record["kernels"][0]["launch"]["registers"] == 151);
}

TEST_CASE("emulate: the source stands beside the bytes where it is there") {
  const TemporaryFolder folder;
  const ProgramResult result = run_program(
      {"emulate", kExamples + "transpose.ptx", "--launch", kExamples + "transpose.json"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "out[x * n + y] = in[y * n + x];"));
  CHECK(contains(result.out, "uncoalesced at transpose.cu:10"));
}

TEST_CASE("emulate: what cannot be run is refused in one sentence, and nothing is written") {
  const auto refused = [](auto&& change, const char* words) {
    Emulation emulation;
    emulation.more = {"--json", "r.json"};
    change(emulation);
    const ProgramResult result = emulation.run();
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out == "");
    CHECK(contains(result.err, words));
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
    CHECK_FALSE(std::filesystem::exists(emulation.folder.path() / "r.json"));
  };
  refused([](Emulation& e) { e.ptx = e.ptx.substr(0, 3000); }, "PTX line ");
  refused([](Emulation& e) { e.ptx = replaced(e.ptx, ".version ", ".version 1"); }, "newer than 9.x");
  refused([](Emulation& e) { e.launch = "{"; }, "not valid JSON");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "\"grid\"", "\"gird\""); }, "did you mean grid");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "[4, 4]", "[4, 70000]"); },
          "at most 2147483647x65535x65535");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "int32", "int64"); },
          "argument 2 (n) = 8 bytes: must fit parameter transpose_tiled_param_2 of 4 bytes");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "128}", "4294967296}"); },
          "value = 4294967296: must be what int32 holds");
  refused(
      [](Emulation& e) { e.launch = replaced(e.launch, "int32", "float32"); },
      "argument 2 (n) = a floating-point number: must fit parameter transpose_tiled_param_2, which is .u32");
  refused(
      [](Emulation& e) {
        e.launch =
            replaced(e.launch, "\"block\"", "\"shared\": 163000, \"max_dynamic_shared\": 163000, \"block\"");
      },
      "a CTA has 166912 at most on sm_80");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "float32", "flaot32"); }, "float32");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "transpose_tiled", "transpose"); },
          "must name one of 2: transpose_naive, transpose_tiled");
  refused([](Emulation& e) { e.launch = replaced(e.launch, "[128, 128]", "[1099511627776, 128]"); },
          "below 1 TiB");
  refused(
      [](Emulation& e) {
        e.ptx = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n";
        e.launch = R"({"grid": 2000000000, "block": 32, "arguments": []})";
        e.more.insert(e.more.end(), {"--most-seconds", "1"});
      },
      "its 2000000000 CTAs or clusters would take about");
  check_refused({{"emulate"}, {"KERNEL", "--help"}});
  check_refused({{"emulate", "--", "true"}, {"PROGRAM", "emulated CUDA runtime"}});
  check_refused({{"emulate", "nothing.ptx"}, {"--launch", "--help"}});
  check_refused({{"emulate", "nothing.ptx", "--launch", "nothing.json"}, {"nothing.json"}});
}

}  // namespace tilescope::testing
