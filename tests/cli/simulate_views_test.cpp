// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate` side by side: kernels, machines, tiles, models; and what it says its numbers rest on.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>

#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "profiler/records/json_fields.hpp"
#include "tests/cli/program.hpp"
#include "tests/paths.hpp"

namespace tilescope::testing {
namespace {

std::string simulated(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "simulate");
  const ProgramResult result = run_program(arguments);
  CAPTURE(result.err);
  CHECK(result.exit_code == 0);
  return std::regex_replace(result.out, std::regex("\n    (?=\\S)"), " ");  // as it was before it was wrapped
}

}  // namespace

TEST_CASE("several kernels make one compact table, --detail has the passes") {
  const std::vector<std::string> four = {
      "--seqlen",     "512",      "--dtype",    "fp16",     "--pass",     "fwd+bwd",  "--kernel",
      "cpu:standard", "--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--kernel", "gpu:flash2-mma"};
  const std::string compact = simulated(four);
  CHECK(std::count(compact.begin(), compact.end(), '\n') <= 30);
  CHECK(contains(compact, "forward must move"));
  CHECK(contains(compact, "backward must move"));
  CHECK_FALSE(contains(compact, "L2 hit rate"));
  std::vector<std::string> detail = four;
  const std::string curve =
      simulated({"--seqlen", "512", "--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--curve"});
  CHECK(contains(curve, "LRU from"));
  detail.push_back("--detail");
  CHECK(contains(simulated(detail), "L2 hit rate"));
}

TEST_CASE("what must move is the problem's, whatever the tile") {
  std::set<std::string> must;
  for (const char* tile : {"16x16", "64x128", "128x256"}) {
    const std::string text = simulated({"--causal", "--window", "300,0", "--seqlen-q", "1000", "--seqlen-k",
                                        "3001", "--kernel", "cpu:flash2", "--detail", "--tile", tile});
    const std::size_t at = text.find("must read");
    must.insert(text.substr(at, text.find('\n', at) - at));
  }
  CHECK(must.size() == 1);
}

TEST_CASE("kernels side by side compute one element type, and share what is said of their bytes") {
  const std::string table = simulated(
      {"--seqlen", "512", "--kernel", "gpu:standard", "--kernel", "gpu:flash2-mma", "--explain-model"});
  CHECK(contains(table, "D64 fp16"));
  CHECK(contains(table, "DRAM bytes of gpu:standard, gpu:flash2-mma on h200: CTAs row-major"));
  check_refused({{"simulate", "--seqlen", "512", "--kernel", "gpu:flash2-simt", "--kernel", "gpu:flash2-mma"},
                 {"not fp32"}});
}

TEST_CASE(
    "machines side by side each have the tile of their own shared memory, and limits that all of them hold") {
  const std::vector<std::string> rule = {"--seqlen",     "1k",      "--kernel",      "cpu:flash2",
                                         "--sram-bytes", "machine", "--closed-form", "--machine"};
  const auto tile = [&rule](const std::string& machine) {
    std::vector<std::string> alone = rule;
    alone.push_back(machine);
    const std::string text = simulated(alone);
    const std::size_t at = text.find("tile ");
    return text.substr(at, text.find(" by the paper's rule") - at);
  };
  REQUIRE(tile("h200") != tile("rtx-5070-ti"));
  std::vector<std::string> both = rule;
  both.push_back("h200,rtx-5070-ti");
  const std::string table = simulated(both);
  CHECK(contains(table, "h200: " + tile("h200") + " by"));
  CHECK(contains(table, "rtx-5070-ti: " + tile("rtx-5070-ti") + " by"));
  const std::vector<std::string> many = {"simulate", "--seqlen", "512", "--ctas-per-sm", "32", "--machine"};
  std::vector<std::string> two_machines = many, one_machine = many;
  two_machines.push_back("h200,rtx-5070-ti");
  one_machine.push_back("h200");
  check_refused({two_machines, {"ctas-per-sm", "32", "1 ... 24"}});
  CHECK(run_program(one_machine).exit_code == 0);
  check_refused({{"simulate", "--seqlen", "512", "--tune-bytes", "--machine", "h200,rtx-5070-ti"},
                 {"--machine", "one"}});
}

TEST_CASE("what decides DRAM bytes is explained where it is asked for, and how far to trust it") {
  const std::string short_one = simulated({"--preset", "llama3-8b", "--seqlen", "1k"});
  CHECK(contains(
      short_one,
      "kernel gpu:flash2-mma, default for h200: newest kernel for A100 and later (gpu:flash3 is not)\n"));
  CHECK(contains(short_one, "forward must move"));
  CHECK_FALSE(contains(short_one, "calibrated"));
  CHECK(std::count(short_one.begin(), short_one.end(), '\n') <= 10);
  const std::string h200 = simulated({"--preset", "llama3-8b", "--seqlen", "1k", "--explain-model"});
  CHECK(contains(h200, "DRAM bytes of gpu:flash2-mma on h200: CTAs head-swizzled, tiles ascending"));
  CHECK(contains(h200, "calibrated by counters"));
  const std::string a100 =
      simulated({"--preset", "llama3-8b", "--seqlen", "1k", "--machine", "a100-80gb", "--explain-model"});
  CHECK(contains(a100, "kernel gpu:flash2-mma, default for a100-80gb: newest"));  // as on any machine
  CHECK(contains(a100, "L2 40 MiB, of which 25.60 MiB (64 %, assumed) simulated"));
  CHECK(contains(a100, "LRU cache of 25.60 MiB (assumed)"));
  CHECK(contains(simulated({"--seqlen", "512", "--l2-bytes", "32MiB", "--explain-model"}),
                 "LRU cache of 32 MiB, as asked"));
}

TEST_CASE("bounds that say nothing are not printed") {
  const std::string text =
      simulated({"--seqlen", "512", "--pass", "fwd+bwd", "--kernel", "cpu:flash2", "--detail"});
  CHECK(contains(
      text,
      "SM<->L2 reads: 5.67x the lower bound of 3.146 MB with 66 MiB on chip (all SMs): every input once"));
  CHECK_FALSE(contains(text, "says less"));
  CHECK_FALSE(contains(text, ": 0 B"));
}

TEST_CASE("a kernel that was not named is the same on every machine, and says why it was taken") {
  const std::string two =
      simulated({"--seqlen", "512", "--dtype", "fp16", "--machine", "a100-80gb,h200", "--closed-form"});
  CHECK(contains(two, "kernel gpu:flash2-mma, default for a100-80gb, h200: newest kernel"));
  const std::string tile = simulated({"--seqlen", "512", "--dtype", "fp16", "--tile", "256x256"});
  CHECK(contains(tile, "kernel cpu:flash2, default where gpu:flash2-mma "));
  CHECK(contains(tile, "256x256"));
  CHECK(contains(simulated({"--seqlen", "512", "--dtype", "fp32"}),
                 "kernel gpu:flash2-simt, default for h200: newest kernel for A100 and later "
                 "(gpu:flash2-mma computes"));
  const std::string untyped = simulated({"--seqlen", "512"});
  CHECK(contains(untyped, "B1 H8 N512 D64 fp16\n"));
  CHECK(contains(untyped, "kernel gpu:flash2-mma, default for h200"));
  CHECK_FALSE(contains(simulated({"--seqlen", "512", "--kernel", "cpu:flash2"}), "default for"));
}

TEST_CASE("formulas alone have no columns of DRAM bytes") {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--seqlen", "512", "--kernel", "cpu:flash1,cpu:flash2"},
        std::vector<std::string>{"--sweep", "seqlen=256,512", "--kernel", "cpu:flash2"}}) {
    std::vector<std::string> formulas = more;
    formulas.emplace_back("--closed-form");
    const auto table_of = [](const std::string& text) { return text.substr(text.find("SM<->L2  x must")); };
    CHECK(contains(table_of(simulated(more)), "DRAM"));
    CHECK_FALSE(contains(table_of(simulated(formulas)), "DRAM"));
    CHECK_FALSE(contains(table_of(simulated(formulas)), " - "));
  }
}

TEST_CASE("what cannot be is warned of under the header, before any table") {
  struct Case {
    std::vector<std::string> arguments;
    std::vector<const char*> said;
  };
  const Case cases[] = {
      {{"--seqlen", "512", "--kernel", "gpu:flash3", "--machine", "a100-80gb", "--closed-form"},
       {"warning: gpu:flash3 runs on sm_90 alone, and a100-80gb is sm_80"}},
      {{"--seqlen", "4k", "--heads", "1", "--kernel", "cpu:flash2", "--tile", "4096x4096", "--closed-form"},
       {"warning: a CTA of cpu:flash2 forward needs 5 MiB of shared memory", "h200 has 227 KiB"}},
      {{"--preset", "llama3-8b", "--kernel", "gpu:standard", "--seqlen", "256k", "--closed-form"},
       {"warning: the tensors of gpu:standard take ", "more than the 141 GB of h200"}},
      {{"--model", "llama3-70b", "--tp", "8", "--decode", "--kernel", "gpu:flash2-mma"},
       {"forward has 8 CTAs for the 132 SMs of h200: the time bound assumes the rates of all SMs; by the "
        "rates of so many SMs the pass takes at least ",
        "; 8/132 SMs\n"}},
  };
  for (const Case& one : cases) {
    const std::string text = std::regex_replace(simulated(one.arguments), std::regex(" +"), " ");
    CAPTURE(text);
    for (const char* part : one.said) {
      const std::string said = std::regex_replace(part, std::regex(" +"), " ");
      CAPTURE(said);
      const std::string in_one_line = std::regex_replace(text, std::regex("\n"), " ");
      CHECK((contains(text, said) || contains(in_one_line, said)));
    }
    CHECK(text.find("warning: ") < text.find("tile"));
  }
  CHECK_FALSE(contains(simulated({"--preset", "llama3-8b", "--closed-form"}), "warning: "));
  // What fewer SMs could move sooner than DRAM delivers bounds nothing.
  const std::string decode = simulated({"--model", "llama3-70b", "--tp", "8", "--decode", "--seqlen", "64k"});
  CHECK(contains(decode, "warning: gpu:decode forward has "));
  CHECK_FALSE(contains(decode, "with the share"));
}

TEST_CASE("a verdict rests on measured ceilings, or says that it does not") {
  const std::string h200 = simulated({"--preset", "llama3-8b", "--seqlen", "1k", "--explain-model"});
  CHECK(contains(h200, "SM<->L2 9.756 TB/s (measured)"));
  CHECK_FALSE(contains(h200, "unverified"));
  const std::string list = std::regex_replace(run_program({"list", "machines"}).out, std::regex("\\s+"), " ");
  CHECK(contains(list, "DRAM 4.800 TB/s NVIDIA H200 SXM, 141 GB; judged by the ceilings of h200-measured"));
  CHECK(contains(list, "; by which h200 is judged too"));
  CHECK(contains(simulated({"--seqlen", "4k", "--heads", "64", "--dtype", "fp16", "--machine", "rtx-5070-ti",
                            "--kernel", "cpu:flash2", "--closed-form"}),
                 "fp16 peak (unverified); no L2 rate\n"));
}

TEST_CASE("a machine of a datasheet's numbers says in each line what it lacks, and what is a default") {
  const TemporaryFolder folder;
  const auto fact = [](const Json& value) {
    return Json{{"value", value}, {"kind", "datasheet"}, {"source", "its datasheet"}};
  };
  const Json machine{{"name", "b200"},
                     {"sm_count", fact(148)},
                     {"shared_bytes_per_sm", fact("228KiB")},
                     {"l2_bytes", fact("126MiB")},
                     {"dram_bytes_per_second", fact("8TB/s")},
                     {"peak_flops_per_second", {{"fp16", fact("2250TFLOP/s")}}}};
  const std::string path = (folder.path() / "b200.json").string();
  std::ofstream(path) << machine.dump();
  const std::string text =
      simulated({"--seqlen", "1k", "--kernel", "cpu:flash2", "--dtype", "fp16", "--machine", path});
  CHECK(contains(text, "of which 80.64 MiB (64 %, default) simulated"));
  CHECK(std::regex_search(text, std::regex(">[0-9.]+ us")));
  CHECK(contains(text, "exponentials (default); no L2 rate"));
  const std::string numbers =
      std::regex_replace(run_program({"list", "machines", path}).out, std::regex("\\s+"), " ");
  CHECK(contains(numbers, "132120576 bytes, datasheet"));
  CHECK(contains(numbers, "TileScope's default: 64 % of the L2"));
  CHECK(contains(run_program({"list", "machines", "h200"}).out, "NVIDIA H200"));
  check_refused({{"simulate", "--machine", "rtx4090"}, {"list machines --template >rtx4090.json", "h200"}});
  check_refused({{"list", "kernels", "h200"}, {"must stand with machines or schemas"}});
}

TEST_CASE("one table across machines, by names with commas or --compare and a file") {
  const std::string two = simulated({"--seqlen", "512", "--machine", "a100-40gb,h200"});
  CHECK(contains(two, "NVIDIA A100"));
  CHECK(contains(two, "machine"));
  CHECK(contains(two, " a100-40gb "));
  CHECK(contains(two, " h200 "));
  CHECK(simulated({"--seqlen", "512", "--machine", "a100-40gb", "--machine", "h200"}) == two);
  const TemporaryFolder folder;
  Json json = parse_json("h200", read_text_file(TILESCOPE_SOURCE_DIR "/analysis/model/machine/h200.json"));
  json["name"] = "h20";
  json["dram_bytes_per_second"]["value"] = 4.0e12;
  const std::string damaged = (folder.path() / "damaged.json").string();
  std::ofstream(damaged) << "{";
  check_refused({{"simulate", "--machine", damaged}, {damaged + " is not valid JSON: "}});
  const std::string path = (folder.path() / "h20.json").string();
  std::ofstream(path) << json.dump();
  const ProgramResult result = run_program(
      {"simulate", "--seqlen", "512", "--machine", path, "--compare", "h200", "--json", "both.json"},
      folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(contains(result.out, "h20 "));
  const RunRecord record = read_run_record((folder.path() / "both.json").string());
  REQUIRE(record.runs.size() == 2);
  CHECK(record.runs[0].passes[0].simulated->machine == "h20");
  CHECK(record.runs[1].passes[0].simulated->machine == "h200");
}

TEST_CASE("a model's layer, its devices, and bytes a layer and a token") {
  const std::string decode =
      simulated({"--model", "llama3-70b", "--tp", "8", "--decode", "--seqlen", "4k", "--batch", "2"});
  CHECK(contains(decode, "B2 H8/1 Nq1 Nk4096 D128 bf16 causal"));
  CHECK(contains(decode, "gpu:decode"));  // which no rung of the ladder is
  CHECK(contains(decode, "Llama 3 70B forward"));
  CHECK(contains(decode, "a token"));
  CHECK(contains(simulated({"--model", "mistral-7b", "--seqlen", "512"}), "window(4095,-1)"));
  const std::string two =
      simulated({"--model", "llama3-8b", "--seqlen", "512", "--machine", "a100-80gb,h200"});
  CHECK(contains(two, "gpu:flash2-mma on a100-80gb: a device moves"));
  CHECK(contains(two, "gpu:flash2-mma on h200: a device moves"));
  check_refused({{"simulate", "--model", "llama3-70"}, {"model", "did you mean llama3-70b"}});
  check_refused({{"simulate", "--model", "llama3-70b", "--tp", "3"}, {"tp = 3", "64 heads"}});
  check_refused({{"simulate", "--tp", "8"}, {"tp = 8", "--model"}});
  CHECK(contains(run_program({"list", "models"}).out, "arXiv:2407.21783"));
}

TEST_CASE("costs are said before the work, and --dry-run does none") {
  CHECK(contains(run_program({"list", "studies"}).out, "about "));
  const ProgramResult study = run_program({"study", "seqlen", "--dry-run"});
  CHECK(study.exit_code == 0);
  CHECK(contains(study.out, "seqlen: 25 tasks on h200, about "));
  CHECK(contains(run_program({"study", "block-size", "--dry-run"}).out, " tile 256x256: "));
  // Of which the machine knows how its CTAs drift apart: a slower replay than of as many tiles in step.
  CHECK(contains(simulated({"--preset", "long-128k", "--dry-run"}), "1 run, about 16 s"));
}

TEST_CASE("lengths and bytes take the prefixes that are printed") {
  CHECK(simulated({"--seqlen", "1k", "--closed-form"}) == simulated({"--seqlen", "1024", "--closed-form"}));
  CHECK(simulated({"--seqlen", "512", "--l2-bytes", "50MB"}) ==
        simulated({"--seqlen", "512", "--l2-bytes", "50000000"}));
  CHECK(simulated({"--sweep", "seqlen=1k..2k", "--closed-form"}) ==
        simulated({"--sweep", "seqlen=1024..2048", "--closed-form"}));
}

TEST_CASE("a kernel of one element type gets it where none was chosen") {
  CHECK(contains(simulated({"--kernel", "gpu:flash2-mma", "--seqlen", "256", "--closed-form"}), "D64 fp16"));
  const ProgramResult bench = run_program({"bench", "--kernel", "gpu:flash2-mma", "--seqlen", "256"});
  CHECK_FALSE(contains(bench.err, "not fp32"));
  check_refused({{"simulate", "--kernel", "gpu:flash2-mma", "--dtype", "fp32"}, {"not fp32"}});
}

TEST_CASE("a variant is named beside its kernel, swept over, and refused where the kernel has it not") {
  const auto simulated = [](const std::vector<std::string>& more) {
    std::vector<std::string> words = {"simulate", "--seqlen", "1024",       "--heads", "64",
                                      "--dtype",  "fp16",     "--head-dim", "128",     "--closed-form"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  const std::string swept =
      simulated({"--kernel", "gpu:flash3", "--sweep", "variant=own,no-overlap,serial"}).out;
  CHECK(contains(swept, "gpu:flash3 (no-overlap)"));
  CHECK(contains(swept, "gpu:flash3 (serial)"));
  const std::string shared =
      simulated({"--kernel", "gpu:flash3", "--pass", "bwd", "--sweep", "query_splits=1,2"}).out;
  CHECK(contains(shared, "gpu:flash3 fused, backward"));
  CHECK(contains(shared, "gpu:flash3 fused (2 query splits), backward"));
  CHECK(contains(simulated({"--kernel", "gpu:flash2-mma", "--variant", "normalised"}).out, "gpu:flash2-mma"));
  check_refused({{"simulate", "--kernel", "gpu:flash2-mma", "--dtype", "fp16", "--variant", "serial"},
                 {"has no variant serial"}});
  check_refused(
      {{"simulate", "--kernel", "gpu:flash3", "--dtype", "fp16", "--variant", "half"}, {"variant", "half"}});
}

TEST_CASE("devices that share a model's heads are at least one, a model's layer has its own heads") {
  for (const char* tp : {"0", "-1", "-9223372036854775807"}) {
    check_refused({{"simulate", "--model", "llama3-70b", "--tp", tp}, {"tp", tp, "must divide"}});
  }
  const std::vector<std::string> layer = {"--model", "llama3-70b", "--seqlen", "256", "--closed-form"};
  CHECK(contains(simulated(layer), "Llama 3 70B forward"));
  for (const char* option : {"--heads", "--heads-kv", "--head-dim"}) {
    std::vector<std::string> other = layer;
    other.insert(other.begin(), "simulate");
    other.insert(other.end(), {option, "8"});
    check_refused({other, {std::string(option) + " = 8: must stand without --model"}});
  }
}

TEST_CASE("a time is bounded by the peak of what multiplies, whatever the element type") {
  const auto bound = [](const char* kernel) {
    return simulated({"--seqlen", "4k", "--head-dim", "128", "--dtype", "fp16", "--kernel", kernel,
                      "--closed-form", "--explain-model"});
  };
  CHECK(contains(bound("gpu:flash1"), "fp32 peak"));
  CHECK(contains(bound("gpu:flash1"), "h200: fp32 "));
  CHECK(contains(bound("gpu:flash1-mma"), "h200: fp16 "));
  CHECK_FALSE(contains(bound("gpu:flash1-mma"), "fp32"));
}

}  // namespace tilescope::testing
