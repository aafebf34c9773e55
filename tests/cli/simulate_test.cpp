// SPDX-License-Identifier: Apache-2.0
// `tilescope simulate`, run as a user runs it.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/sha256.hpp"
#include "tests/cli/run_program.hpp"

namespace tilescope {
namespace {

using testing::ProgramResult;
using testing::run_program;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("simulate prints a table and writes a record that reads back") {
  const testing::TemporaryFolder folder;
  const ProgramResult result =
      run_program({"simulate", "--preset", "small", "--pass", "fwd+bwd", "--kernel", "cpu:flash1", "--kernel",
                   "cpu:flash2", "--backward", "split", "--json", "run.json"},
                  folder.path());
  CHECK(result.exit_code == 2);  // flash1 has no such order
  CHECK(folder.empty());

  const ProgramResult both = run_program({"simulate", "--preset", "small", "--pass", "fwd+bwd", "--kernel",
                                          "cpu:flash2", "--detail", "--explain-model", "--json", "run.json"},
                                         folder.path());
  CHECK(both.exit_code == 0);
  CHECK(both.err.empty());
  for (const char* part :
       {"SM<->L2 read, closed form", "DRAM read, simulated", "L2 hit rate", "must read", "FLOP/B at DRAM",
        "time bound", "limited by", "the lower bound of", "dkdvdq", "measured"}) {
    CAPTURE(part);
    CHECK(contains(both.out, part));
  }
  const RunRecord record = read_run_record((folder.path() / "run.json").string());
  REQUIRE(record.runs.size() == 1);
  CHECK(record.runs[0].passes.size() == 4);  // forward; delta, dkdvdq, convert
  for (const PassRecord& pass : record.runs[0].passes) {
    CHECK(pass.simulated->sm_l2_read_bytes == pass.closed_form->sm_l2_read_bytes);
  }
}

TEST_CASE("a record that is simulated stays as it was, and the simulation says whose it is") {
  const testing::TemporaryFolder folder;
  const auto in_folder = [&folder](const std::vector<std::string>& words) {
    return run_program(words, folder.path()).exit_code;
  };
  const std::string measured = (folder.path() / "measured.json").string();
  REQUIRE(in_folder({"simulate", "--seqlen", "128", "--json", "measured.json"}) == 0);
  CHECK(contains(run_program({"simulate", "--record", "measured.json"}, folder.path()).out,
                 "measured.json: no pass has DRAM reads both measured and simulated: nothing to compare\n"));
  RunRecord record = read_run_record(measured);
  record.argv = {"tilescope", "profile"};
  record.when = "2026-01-31T00:00:00Z";
  record.git = {"0123456789abcdef0123456789abcdef01234567", false};
  record.runs[0].passes[0].measured = MeasuredBytes{1, 2, 3, 4};
  write_run_record(record, measured);
  CHECK(in_folder({"simulate", "--record", "measured.json", "--json", "measured.json"}) == 2);
  CHECK(in_folder({"simulate", "--record", "measured.json", "--machine", "a100-40gb", "--json",
                   "model.json"}) == 0);
  const std::string compared = run_program({"simulate", "--record", "measured.json"}, folder.path()).out;
  CHECK(contains(compared, "  off by\n"));
  CHECK(contains(compared, "warning: gpu:flash2-mma forward: a launch read 3 B of the "));
  CHECK(read_run_record(measured) == record);
  const RunRecord model = read_run_record((folder.path() / "model.json").string());
  CHECK(model.argv.at(1) == "simulate");
  CHECK(model.git == built_from());
  REQUIRE(model.simulation_of.has_value());
  CHECK(*model.simulation_of == SimulationSource{"measured.json", record.argv, record.when, record.git,
                                                 "a100-40gb", sha256(read_text_file(measured)),
                                                 sha256(to_json_text(load_machine("a100-40gb"))),
                                                 model_sha256()});
  CHECK(!model.runs[0].passes[0].measured.has_value());
  CHECK(model.runs[0].passes[0].simulated->machine == "a100-40gb");
}

TEST_CASE("a record of an ordered backward pass is simulated in the order and the sections it was made in") {
  const testing::TemporaryFolder folder;
  std::vector<std::int64_t> dram_reads;
  for (const char* order : {"fused", "ordered"}) {
    CAPTURE(order);
    const ProgramResult made =
        run_program({"simulate",   "--kernel", "gpu:flash3", "--dtype",    "fp16",   "--causal", "--heads",
                     "32",         "--seqlen", "512",        "--head-dim", "256",    "--pass",   "bwd",
                     "--backward", order,      "--machine",  "a100-40gb",  "--json", "made.json"},
                    folder.path());
    CAPTURE(made.err);
    REQUIRE(made.exit_code == 0);
    REQUIRE(
        run_program({"simulate", "--record", "made.json", "--machine", "a100-40gb", "--json", "again.json"},
                    folder.path())
            .exit_code == 0);
    const RunRecord record = read_run_record((folder.path() / "made.json").string());
    CHECK(read_run_record((folder.path() / "again.json").string()).runs == record.runs);
    dram_reads.push_back(record.runs.at(0).passes.at(1).simulated->dram_read_bytes);
  }
  CHECK(dram_reads.at(0) != dram_reads.at(1));  // or nothing was told apart
}

TEST_CASE("simulate says what of the bytes belongs to no tile") {
  const auto out_of = [](const char* kernel, const char* head_dim) {
    return run_program({"simulate", "--seqlen", "1k", "--dtype", "fp16", "--kernel", kernel, "--head-dim",
                        head_dim, "--detail"})
        .out;
  };
  const std::string forward = out_of("gpu:flash3", "64");
  CAPTURE(forward);
  CHECK(contains(
      forward, "forward: flags and counters of CTAs take 4.096 kB of these reads, 4.100 kB of the writes\n"));
  CHECK(!contains(forward, "boxes"));
  CHECK(!contains(out_of("gpu:flash2-mma", "64"), "of these reads"));
  // 8 heads of Q, and of K and V for each of its 16 tiles: 1024 rows with 64 bytes of zeros.
  CHECK(contains(out_of("gpu:flash3", "96"), "forward: 17.30 MB of these reads are zeros beyond tensors"));
  // 64 CTAs of 16 kv tiles: where these are, which each is, and a slope, by sectors.
  const std::string varied = run_program({"simulate", "--seqlen", "1k", "--dtype", "fp16", "--kernel",
                                          "gpu:flash2-mma", "--alibi", "--detail"})
                                 .out;
  CAPTURE(varied);
  CHECK(
      contains(varied, "forward: tables of visited tiles take 34.82 kB of these reads, 0 B of the writes\n"));
  CHECK(contains(varied, "forward: 1.792 kB of these reads are what sectors hold beside numbers of heads\n"));
  // 64 heads of 16 q tiles, which 1 + 1 + 2 + 2 ... 8 + 8 = 72 kv tiles visit, with two flags each.
  const std::string backward =
      run_program({"simulate", "--batch", "4", "--heads", "16", "--seqlen", "1024", "--head-dim", "128",
                   "--dtype", "fp16", "--causal", "--pass", "bwd", "--kernel", "gpu:flash3", "--detail"})
          .out;
  CAPTURE(backward);
  CHECK(contains(backward,
                 "delta: flags and counters of CTAs take 0 B of these reads, 8.192 kB of the writes\n"));
  CHECK(contains(backward,
                 "dkdvdq: flags and counters of CTAs take 294.9 kB of these reads, 360.4 kB of the "
                 "writes\n"));
}

TEST_CASE("simulate --json - writes nothing but the record") {
  const ProgramResult result = run_program({"simulate", "--seqlen", "256", "--json", "-"});
  CHECK(result.exit_code == 0);
  CHECK(parse_run_record("stdout", result.out).runs.size() == 1);
}

TEST_CASE("--pages random says how DRAM reads range, and is kept in the record") {
  const testing::TemporaryFolder folder;
  const ProgramResult result = run_program(
      {"simulate", "--seqlen", "512", "--pages", "random", "--detail", "--json", "run.json"}, folder.path());
  CHECK(result.exit_code == 0);
  CHECK(contains(result.out, "pages at random places"));
  CHECK(contains(result.out, "DRAM read, least"));
  const RunRecord record = read_run_record(folder.path() / "run.json");
  CHECK(record.runs[0].pages == PagePlacement::random);
  CHECK(record.runs[0].passes[0].simulated->dram_read_range.has_value());
  const ProgramResult contiguous = run_program({"simulate", "--seqlen", "512"});
  CHECK_FALSE(contains(contiguous.out, "random"));
  CHECK_FALSE(contains(contiguous.out, "DRAM read, least"));
}

TEST_CASE("DRAM bytes have intervals where counters judged the model of the L2, and nowhere else") {
  const testing::TemporaryFolder folder;
  const ProgramResult judged =
      run_program({"simulate", "--seqlen", "512", "--pass", "fwd+bwd", "--json", "run.json"}, folder.path());
  const std::string line = "\n  DRAM, 90 % of an H200's launches within: gpu:flash2-mma ";
  const std::size_t backward = judged.out.find("backward must move");
  CHECK(judged.out.find(line) < backward);
  CHECK(judged.out.find(line, backward) != std::string::npos);
  const SimulatedBytes bytes = *read_run_record(folder.path() / "run.json").runs[0].passes[0].simulated;
  REQUIRE(bytes.dram_read_interval);
  CHECK((*bytes.dram_read_interval)[0] < bytes.dram_read_bytes);
  CHECK((*bytes.dram_read_interval)[1] > bytes.dram_read_bytes);
  CHECK((*bytes.dram_write_interval)[1] > bytes.dram_write_bytes);
  CHECK(contains(run_program({"simulate", "--seqlen", "512", "--detail"}).out, "DRAM written, 90 % within"));
  for (const std::vector<std::string>& unjudged : {std::vector<std::string>{"--machine", "a100-80gb"},
                                                   {"--kernel", "cpu:flash2"},
                                                   {"--l2-bytes", "32MB"},
                                                   {"--closed-form"}}) {
    std::vector<std::string> arguments = {"simulate", "--seqlen", "512"};
    arguments.insert(arguments.end(), unjudged.begin(), unjudged.end());
    CAPTURE(unjudged.front());
    CHECK_FALSE(contains(run_program(arguments).out, "DRAM, 90 %"));
  }
}

TEST_CASE("--closed-form leaves the replay out, --curve adds the L2 sizes") {
  const ProgramResult formulas = run_program({"simulate", "--preset", "long-128k", "--closed-form"});
  CHECK(formulas.exit_code == 0);
  CHECK_FALSE(contains(formulas.out, "simulated "));
  CHECK_FALSE(contains(formulas.out, "DRAM read"));
  const ProgramResult curve = run_program({"simulate", "--seqlen", "2048", "--curve"});
  CHECK(contains(curve.out, "LRU from"));
}

TEST_CASE("a sweep simulates every combination, a line and an entry of the record each") {
  const testing::TemporaryFolder folder;
  const ProgramResult result =
      run_program({"simulate", "--sweep", "seqlen=256..1024", "--sweep", "scan=ascending,sawtooth",
                   "--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--json", "run.json"},
                  folder.path());
  CHECK(result.exit_code == 0);
  const RunRecord record = read_run_record(folder.path() / "run.json");
  REQUIRE(record.runs.size() == 12);
  CHECK(record.runs[0].problem.seqlen_q == 256);
  CHECK(record.runs[0].kernel == "cpu:flash1");
  CHECK(record.runs[1].kernel == "cpu:flash2");
  CHECK(record.runs[3].scan == Scan::sawtooth);
  CHECK(record.runs[11].problem.seqlen_k == 1024);
  const std::string& text = result.out;
  CHECK(std::count(text.begin(), text.end(), '\n') >= 13);
  for (const char* part : {"SM<->L2  x must", "DRAM read", "flash1, forward on h200", "N1024", "sawtooth"})
    CHECK(contains(text, part));
}

TEST_CASE(
    "a sweep goes on without what is refused, direction by direction, and says so in its parts' record") {
  const testing::TemporaryFolder folder;
  const auto swept = [&folder](std::vector<std::string> more) {
    more.insert(more.begin(), {"simulate", "--closed-form", "--seqlen", "256", "--heads", "4"});
    return run_program(more, folder.path());
  };
  const std::vector<std::string> sweep = {"--kernel", "gpu:flash3",         "--pass",  "fwd+bwd",
                                          "--sweep",  "dtype=fp16,fp8e4m3", "--sweep", "heads_kv=3,4"};
  const auto with = [&sweep](std::vector<std::string> more) {
    more.insert(more.begin(), sweep.begin(), sweep.end());
    return more;
  };
  const ProgramResult whole = swept(with({"--json", "run.json"}));
  CHECK(whole.exit_code == 0);
  CAPTURE(whole.out);
  for (const char* part : {"left out: heads_kv = 3: must divide heads = 4 (2 runs)\n",
                           "left out: gpu:flash3, backward: computes fp16 and bf16 backward, not fp8e4m3",
                           "\n3 of 6 runs refused\n"})
    CHECK(contains(whole.out, part));
  const RunRecord record = read_run_record(folder.path() / "run.json");
  REQUIRE(record.runs.size() == 2);
  CHECK(record.runs[0].passes.size() > 1);
  CHECK(record.runs[1].passes.size() == 1);  // of fp8 forward
  CHECK(record.refused.size() == 3);
  for (const char* part : {"0", "1"}) {
    const std::string name(part);
    CHECK(swept(with({"--shard", name + "/2", "--json", "part-" + name + ".json"})).exit_code == 0);
  }
  CHECK(run_program({"record", "merge", "part-0.json", "part-1.json", "--json", "merged.json"}, folder.path())
            .exit_code == 0);
  CHECK(read_run_record(folder.path() / "merged.json").refused == record.refused);

  const ProgramResult none = swept({"--pass", "bwd", "--sweep", "dtype=fp8e5m2,fp8e4m3"});
  CHECK(none.exit_code == 2);
  CHECK(contains(none.err, "not fp8e5m2"));
  const ProgramResult csv = swept({"--sweep", "heads_kv=3,4", "--format", "csv"});
  CHECK(contains(csv.err, "1 of 2 runs refused"));
  CHECK_FALSE(contains(csv.out, "refused"));
}

TEST_CASE("the paper's rule says whether it fits its own M") {
  // 228 KB in fp16 is M = 116736; at d = 128 the rule gives 128 x 228, which needs 120320.
  const std::vector<std::string> problem = {"simulate", "--seqlen", "1024",     "--head-dim", "128",
                                            "--dtype",  "fp16",     "--kernel", "cpu:flash1", "--sram-bytes"};
  auto with = [&problem](const char* bytes) {
    std::vector<std::string> words = problem;
    words.emplace_back(bytes);
    return run_program(words);
  };
  const ProgramResult overflow = with("233472");
  CHECK(overflow.exit_code == 0);
  CHECK(contains(overflow.out, "128x228"));
  CHECK(contains(overflow.out, "M = 116736"));
  CHECK(contains(overflow.out, "120320"));
  CHECK(contains(overflow.out, "MORE than M"));
  CHECK(contains(with("524288").out, "which fits"));
  CHECK(with("machine").exit_code == 0);
}

TEST_CASE("what simulate cannot take is refused by field and value, with exit code 2 and nothing written") {
  const testing::TemporaryFolder folder;
  const auto refuse = [&folder](std::vector<std::string> words, const std::vector<std::string>& parts) {
    words.insert(words.begin(), "simulate");
    words.insert(words.end(), {"--json", "run.json"});
    const ProgramResult result = run_program(words, folder.path());
    CAPTURE(result.err);
    CHECK(result.exit_code == 2);
    CHECK(result.out.empty());
    for (const std::string& part : parts) CHECK(contains(result.err, part));
    CHECK(folder.empty());
  };
  refuse({"--machine", "h20O"}, {"machine", "h20O", "h200", "a100-40gb"});
  refuse({"--machine", "absent.json"}, {"absent.json"});
  refuse({"--l2-bytes", "-1"}, {"l2-bytes", "-1"});
  refuse({"--l2-bytes", "32M"}, {"l2-bytes", "32M", "32MiB"});
  refuse({"--pages", "strewn"}, {"pages", "strewn", "contiguous or random"});
  refuse({"--pages", "random", "--record", "run.json"}, {"--pages", "--record"});
  refuse({"--ctas-per-sm", "0"}, {"ctas-per-sm", "0"});
  refuse({"--ctas-per-sm", "33"}, {"ctas-per-sm", "33"});
  refuse({"--sram-bytes", "0"}, {"sram-bytes", "0"});
  refuse({"--sram-bytes", "100000000"}, {"tile"});  // the rule's tile is beyond any kernel's
  refuse({"--sram-bytes", "65536", "--tile", "64x64"}, {"--tile"});
  refuse({"--kernel", "cpu:flash9"}, {"cpu:flash9", "cpu:flash2"});
  refuse({"--dtype", "fp8e4m3", "--pass", "bwd"}, {"fp8e4m3"});
  refuse({"--seqlen", "268435456", "--head-dim", "256", "--closed-form", "--pass", "bwd", "--tile", "1x1"},
         {"too large"});
}

}  // namespace
}  // namespace tilescope
