// SPDX-License-Identifier: Apache-2.0
// `tilescope bench`, run as a user runs it, on problems too small to tell anything.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "analysis/cli/bench/bench.hpp"
#include "analysis/model/counts/run_summary.hpp"
#include "analysis/records/run_record.hpp"
#include "analysis/studies/bench_sweeps.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "tests/cli/program.hpp"

namespace tilescope {
namespace {

using testing::run_program;

const std::vector<std::string> kTiny = {"bench", "--heads",       "2", "--seqlen",  "48",   "--head-dim",
                                        "16",    "--repetitions", "2", "--seconds", "0.001"};

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> arguments = kTiny;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("tables and records tell apart what neither tile nor problem shows") {
  const testing::TemporaryFolder folder;
  const auto benched = run_program(tiny({"--kernel", "cpu:flash2", "--dtype", "fp8e4m3", "--pass", "fwd",
                                         "--sweep", "fp8_sums=two-level,fast"}),
                                   folder.path());
  CAPTURE(benched.err);
  REQUIRE(benched.exit_code == 0);
  for (const char* passes : {"forward, two-level sums", "forward, fast sums"}) {
    CAPTURE(passes);
    CHECK(benched.out.find(passes) != std::string::npos);
  }
  for (const char* order : {"fused", "ordered"}) {
    CAPTURE(order);
    const auto simulated =
        run_program({"simulate", "--kernel", "gpu:flash3", "--seqlen", "256", "--heads", "2", "--head-dim",
                     "64", "--pass", "bwd", "--backward", order, "--json", "run.json"},
                    folder.path());
    CAPTURE(simulated.err);
    REQUIRE(simulated.exit_code == 0);
    const RunRecord record = read_run_record((folder.path() / "run.json").string());
    for (const PassRecord& pass : record.runs.at(0).passes) {
      if (pass.name == "dkdvdq") CHECK(pass.choices.backward == parse_backward_order(order));
    }
  }
}

TEST_CASE("bench prints a table and writes a record that reads back") {
  const testing::TemporaryFolder folder;
  const auto result = run_program(
      tiny({"--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--backward", "split", "--json", "run.json"}),
      folder.path());
  CHECK(result.exit_code == 2);  // flash1 has no such order
  CHECK(folder.empty());

  const auto both = run_program(
      tiny({"--kernel", "cpu:flash1", "--kernel", "cpu:flash2", "--threads", "2", "--json", "run.json"}),
      folder.path());
  CAPTURE(both.err);
  REQUIRE(both.exit_code == 0);
  for (const char* part : {"cpu:flash1", "cpu:flash2", "delta+dkdvdq+convert", "FLOP/s", "2 threads"}) {
    CAPTURE(part);
    CHECK(both.out.find(part) != std::string::npos);
  }
  const RunRecord record = read_run_record((folder.path() / "run.json").string());
  REQUIRE(record.runs.size() == 2);
  for (const RunEntry& run : record.runs) {
    REQUIRE(run.passes.size() == 2);
    for (const PassRecord& pass : run.passes) {
      CHECK(pass.time->samples_s.empty());
      CHECK(pass.time->samples == 2);
      CHECK(pass.time->min_s <= pass.time->median_s);
      CHECK(pass.flops > 0);
      CHECK(std::get<std::int64_t>(pass.counters.at("threads")) == 2);
    }
  }
}

TEST_CASE("bench --pass and --dtype choose what is timed, fp8 is timed forward") {
  const auto forward = run_program(tiny({"--pass", "fwd", "--json", "-"}));
  CHECK(forward.exit_code == 0);
  CHECK(parse_run_record("stdout", forward.out).runs.at(0).passes.size() == 1);
  const auto raw = run_program(tiny({"--pass", "fwd", "--raw", "--json", "-"}));
  CHECK(parse_run_record("stdout", raw.out).runs.at(0).passes.at(0).time->samples_s.size() == 2);
  const auto fp8 = run_program(tiny({"--dtype", "fp8e4m3", "--json", "-"}));
  CHECK(parse_run_record("stdout", fp8.out).runs.at(0).passes.size() == 1);
}

TEST_CASE("bench --sweep over axes: three rates each, as a table, as CSV, in the record and drawn") {
  const testing::TemporaryFolder folder;
  const auto result =
      run_program({"bench", "--sweep", "seqlen=16..64", "--sweep", "dtype=fp32,fp8e5m2", "--heads", "1",
                   "--head-dim", "8", "--repetitions", "2", "--seconds", "0.001", "--csv", "rates.csv",
                   "--plot", "rates.svg", "--json", "run.json"},
                  folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(result.out.find("left out: cpu:flash2, backward: ") != std::string::npos);  // of fp8
  CHECK(result.out.find("3 of 12 runs refused") != std::string::npos);
  CHECK(result.out.find("forward+backward") != std::string::npos);
  const RunRecord record = read_run_record((folder.path() / "run.json").string());
  REQUIRE(record.runs.size() == 6);
  CHECK(record.refused.size() == 3);

  const std::string csv = testing::read_file(folder.path() / "rates.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 3 * 3 + 3);  // of fp8 forward alone
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  const auto columns = std::count(line.begin(), line.end(), ',');
  while (std::getline(lines, line)) CHECK(std::count(line.begin(), line.end(), ',') == columns);

  const std::string plot = testing::read_file(folder.path() / "rates.svg");
  for (const char* part :
       {"fp32, forward<", "fp32, backward<", "fp32, forward+backward<", "fp8e5m2, forward<"}) {
    CAPTURE(part);
    CHECK(plot.find(part) != std::string::npos);
  }
  CHECK(plot.find("fp8e5m2, backward") == std::string::npos);
}

TEST_CASE("a sweep of bench goes on without what is refused, where all is, it ends as one problem would") {
  const testing::TemporaryFolder folder;
  const std::string none = "head_dim = 600: must lie in 1 ... 576", many = "query-splits = 64: must leave";
  const auto result = run_program(tiny({"--sweep", "head_dim=16,600", "--sweep", "query_splits=1,64",
                                        "--pass", "bwd", "--json", "run.json"}),
                                  folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  for (const std::string& part :
       {"left out: " + none, "left out: cpu:flash2, backward: " + many, std::string("3 of 4 runs refused")}) {
    CAPTURE(part);
    CHECK(result.out.find(part) != std::string::npos);
    CHECK(result.out.find(part) == result.out.rfind(part));
  }
  const RunRecord record = read_run_record((folder.path() / "run.json").string());
  CHECK(record.runs.size() == 1);
  REQUIRE(record.refused.size() == 3);
  CHECK(record.refused[0].starts_with("cpu:flash2, backward, B1 H2 N48 D16 fp32: " + many));
  CHECK(record.refused[1] == none);
  CHECK(record.refused[2] == none);
  REQUIRE(run_program({"report", "run.json", "--out", "r"}, folder.path()).exit_code == 0);
  CHECK(testing::read_file(folder.path() / "r" / "report.md").find("(1 of 3)") != std::string::npos);

  testing::check_refused({{"bench", "--sweep", "head_dim=600,601"}, {"head_dim = 600"}});
  testing::check_refused({{"bench", "--dtype", "fp8e4m3", "--pass", "bwd", "--sweep", "seqlen=16,32"},
                          {"cpu:flash2", "fp8e4m3"}});
  const auto vast = run_program({"bench", "--heads", "4096", "--pass", "fwd", "--sweep", "seqlen=256k,512k"});
  CHECK(vast.exit_code == 3);
  CHECK(vast.err.find("of memory") != std::string::npos);
}

TEST_CASE("what a kernel or a peer refuses on a device is named, and the others' times stay") {
  const AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 8};
  const Kernel& kernel = cpu_kernels().front();
  const auto lack = [](const char* why) { return std::make_exception_ptr(MachineLacks(why)); };
  const BenchmarkCase one{&kernel, problem, Direction::forward, kernel.default_options(problem), 2};
  DeviceBenchmarkResults results;
  results.times = {{.samples_s = {2e-3}}, {.samples_s = {}, .refusal = lack("out of device memory")}};
  results.peers = {{"a:b", problem, Direction::forward, {.samples_s = {1e-3}}},
                   {"c:d", problem, Direction::forward, {.samples_s = {}, .refusal = lack("no head_dim 8")}}};
  cli::Refusals refusals;
  const cli::BenchReport report = cli::device_report({one, one}, results, refusals);
  CHECK(report.runs.size() == 2);  // that of the peer beside a kernel without samples, too
  const std::string text = refusals.text(2);
  CAPTURE(text);
  CHECK(text.find(std::string(kernel.name) + ", forward: out of device memory (B1") != std::string::npos);
  CHECK(text.find("c:d, forward: no head_dim 8 (B1") != std::string::npos);
  CHECK(text.ends_with("\n2 of 4 runs refused\n"));
  results.times.erase(results.times.begin());
  results.peers.clear();
  CHECK_THROWS_WITH_AS(cli::device_report({one}, results, refusals), "out of device memory", MachineLacks);
}

TEST_CASE("the same problem on several tiles is a run each") {
  const auto result = run_program(tiny({"--sweep", "tile=16x16,32x16", "--json", "-"}));
  const RunRecord record = parse_run_record("stdout", result.out);
  REQUIRE(record.runs.size() == 2);
  CHECK(record.runs[0].passes.at(0).tile == TileShape{16, 16});
  CHECK(record.runs[1].passes.at(1).tile == TileShape{32, 16});
}

TEST_CASE("rows of different orders and slices can be told apart, of one sample there is no noise") {
  const testing::TemporaryFolder folder;
  const auto result = run_program({"bench",
                                   "--heads",
                                   "1",
                                   "--seqlen",
                                   "48",
                                   "--head-dim",
                                   "16",
                                   "--causal",
                                   "--pass",
                                   "bwd",
                                   "--tile",
                                   "16x16",
                                   "--sweep",
                                   "backward=split,single-launch",
                                   "--sweep",
                                   "diagonal_slices=1,2",
                                   "--repetitions",
                                   "1",
                                   "--seconds",
                                   "0.001",
                                   "--csv",
                                   "rates.csv",
                                   "--json",
                                   "run.json"},
                                  folder.path());
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string csv = testing::read_file(folder.path() / "rates.csv");
  for (const char* part : {",delta+dkdv+dq,16x16,1,", ",delta+dkdv+dq,16x16,2,", ",delta+dkdv&dq,16x16,1,",
                           ",delta+dkdv&dq,16x16,2,"}) {
    CAPTURE(part);
    CHECK(csv.find(part) != std::string::npos);
    CHECK(csv.find(part) == csv.rfind(part));
  }
  CHECK(result.out.find("16x16 in 2x2") != std::string::npos);
  CHECK(result.out.find("noise") == std::string::npos);
  CHECK(csv.find(",,1,") != std::string::npos);
  std::set<std::string> labels;
  const std::vector<RunRecord> records = {read_run_record((folder.path() / "run.json").string())};
  for (const RunSummary& summary : summarize(records)) labels.insert(summary.label);
  CHECK(labels == std::set<std::string>{"flash2 single-launch", "flash2 single-launch (2 diagonal slices)",
                                        "flash2 split", "flash2 split (2 diagonal slices)"});
}

/// The values of a column, row by row.
std::vector<std::string> csv_column(const std::string& csv, const std::string& name) {
  std::vector<std::string> values;
  std::size_t column = 0;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields(1);
    for (const char letter : line) {
      if (letter == ',') fields.emplace_back();
      if (letter != ',') fields.back() += letter;
    }
    if (values.empty()) {
      const auto found = std::find(fields.begin(), fields.end(), name);
      REQUIRE(found != fields.end());
      column = static_cast<std::size_t>(found - fields.begin());
    }
    values.push_back(fields.at(column));
  }
  values.erase(values.begin());
  return values;
}

TEST_CASE("bench --csv tells ways to sum fp8 and ordered passes apart, of kernels whose choices are known") {
  RunRecord record;
  const auto add = [&record](ElementType dtype, Direction direction, TileShape tile, PassChoices choices) {
    RunEntry& run = record.runs.emplace_back();
    run.problem.dtype = dtype;
    PassRecord& pass = run.passes.emplace_back();
    pass.name = to_string(direction);
    pass.direction = direction;
    pass.tile = tile;
    pass.choices = std::move(choices);
    pass.time.emplace().median_s = 1e-3;
  };
  using enum Direction;
  add(ElementType::fp8e4m3, forward, {128, 128}, {.fp8_sums = "two-level"});
  add(ElementType::fp8e4m3, forward, {128, 128}, {});
  add(ElementType::fp8e4m3, forward, kUnknownTile, {});
  add(ElementType::fp16, backward, {64, 128}, {.backward = BackwardOrder::ordered});
  add(ElementType::fp16, forward, {64, 128}, {.variant = "no-overlap"});
  record.runs.back().passes.push_back(record.runs[3].passes.front());
  record.runs.back().passes.back().choices = {.diagonal_slices = 2};
  const std::string csv = cli::bench_csv(record);
  CAPTURE(csv);
  using Values = std::vector<std::string>;
  CHECK(csv_column(csv, "fp8_sums") == Values{"two-level", "fp32", "", "", "", "", ""});
  CHECK(csv_column(csv, "ordered") == Values{"no", "no", "", "yes", "no", "no", ""});
  CHECK(csv_column(csv, "variant") == Values{"own", "own", "", "own", "no-overlap", "own", ""});
  CHECK(csv_column(csv, "diagonal_slices") == Values{"1", "1", "1", "1", "1", "2", ""});
  CHECK(csv_column(csv, "direction").back() == "forward+backward");
}

TEST_CASE("the rate of forward and backward together is their work over the sum of their times") {
  RunEntry run;
  run.problem = {.seqlen_q = 100, .seqlen_k = 100, .head_dim = 10};
  PassRecord pass;
  pass.time.emplace().median_s = 1e-3;
  run.passes.push_back(pass);
  CHECK(cli::bench_rates(run).size() == 1);
  pass.direction = Direction::backward;
  pass.time->median_s = 4e-3;
  run.passes.push_back(pass);
  const auto rates = cli::bench_rates(run);
  REQUIRE(rates.size() == 3);
  const double forward_flops = 4.0 * 100 * 100 * 10;
  CHECK(rates[0].paper_flops_per_second == doctest::Approx(forward_flops / 1e-3));
  CHECK(rates[1].paper_flops_per_second == doctest::Approx(2.5 * forward_flops / 4e-3));
  CHECK(rates[2].paper_flops_per_second == doctest::Approx(3.5 * forward_flops / 5e-3));
}

TEST_CASE("the lists of the sources have their shapes") {
  const auto triton = find_bench_sweep("triton").problems();
  CHECK(triton.size() == 2 * 2 * 2 * 5);
  for (const AttentionProblem& p : triton) {
    CHECK(p.batch == 4);
    CHECK(p.heads == 32);
    CHECK(p.softmax_scale == 1.3);
  }
  CHECK(triton.back().seqlen_q == 16384);
  CHECK(triton.back().dtype == ElementType::fp8e5m2);
  const auto library = find_bench_sweep("tile-library").problems();
  CHECK(library.front().seqlen_q == 256);
  CHECK(library.back().seqlen_k == 8192);
}

TEST_CASE("bench refuses what it cannot do") {
  testing::check_refused({{"bench", "--threads", "0"}, {"threads = 0", "1 ... "}});
  testing::check_refused({{"bench", "--repetitions", "two"}, {"repetitions", "two"}});
  testing::check_refused({{"bench", "--seconds", "-1"}, {"seconds", "-1"}});
  testing::check_refused({{"bench", "--seconds", "nan"}, {"seconds", "nan"}});
  testing::check_refused({{"bench", "--sweep", "flash"}, {"sweep", "flash2"}});
  testing::check_refused({{"bench", "--sweep", "cpu", "--sweep", "causal=no"}, {"sweep = cpu", "alone"}});
  testing::check_refused({{"bench", "--sweep", "length=1,2"}, {"sweep", "length", "seqlen"}});
  testing::check_refused({{"bench", "--sweep", "seqlen=4..x"}, {"sweep seqlen", "x"}});
  testing::check_refused({{"bench", "--sweep", "tile=16x16", "--tune", "--kernel", "gpu:flash2-mma"},
                          {"sweep", "tile", "--tune"}});
  testing::check_refused({{"bench", "--seqlen", "8", "--plot", "p.svg"}, {"--plot", "two or more lengths"}});
  testing::check_refused({{"bench", "--seqlen", "8", "--csv", "no/where.csv"}, {"--csv", "no/where.csv"}});
  testing::check_refused({{"bench", "--sweep", "cpu", "--heads", "2"}, {"sweep", "cpu", "without"}});
  testing::check_refused({{"bench", "--sweep", "drawn", "--heads", "2"}, {"sweep", "drawn", "without"}});
  testing::check_refused({{"bench", "--sweep", "drawn", "--count", "0"}, {"count = 0", "1 ... "}});
  testing::check_refused({{"bench", "--sweep", "cpu", "--count", "2"}, {"count = 2", "drawn"}});
  testing::check_refused({{"bench", "--peers"}, {"peers", "gpu:"}});
  testing::check_refused({{"bench", "--rest", "-1", "--kernel", "gpu:flash1"}, {"rest", "0 to 1000"}});
  testing::check_refused({{"bench", "--samples", "0", "--kernel", "gpu:flash1"}, {"samples", "1 ... "}});
  testing::check_refused({{"bench", "--rounds", "0", "--kernel", "gpu:flash1"}, {"rounds", "1 ... "}});
  testing::check_refused(
      {{"bench", "--kernel", "gpu:flash2-mma", "--dtype", "fp32"}, {"gpu:flash2-mma", "fp16"}});
  testing::check_refused({{"bench", "--dtype", "fp8e4m3", "--pass", "bwd"}, {"cpu:flash2", "fp8e4m3"}});
}

TEST_CASE("bench of a GPU kernel where there is no device says what is missing and writes nothing") {
  if (!device_lack()) return;
  const testing::TemporaryFolder folder;
  const auto result =
      run_program({"bench", "--sweep", "flash2", "--peers", "--json", "run.json"}, folder.path());
  CHECK(result.exit_code == 3);
  CHECK(result.err.find("gpu:flash2-mma cannot run") != std::string::npos);
  CHECK(folder.empty());
  // Without a problem, too, a kernel is timed in a type that it computes: fp32 is not among them.
  const auto alone = run_program({"bench", "--kernel", "gpu:flash3"}, folder.path());
  CHECK(alone.exit_code == 3);
  CHECK(alone.err.find("gpu:flash3 cannot run") != std::string::npos);
}

TEST_CASE("clocks and cycles of the SMs stand beside the rates, of kernels and peers") {
  const AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 8};
  const Kernel& kernel = cpu_kernels().front();
  DeviceBenchmarkResults results;
  results.times.push_back({.samples_s = {2e-3}, .sm_clock_hz = 1.5e9});
  results.peers.push_back({"a:b", problem, Direction::forward, {.samples_s = {1e-3}, .sm_clock_hz = 1.75e9}});
  results.peers.push_back({"c:d", problem, Direction::forward, {.samples_s = {1e-3}}});
  cli::Refusals refusals;
  const cli::BenchReport report = cli::device_report(
      {{&kernel, problem, Direction::forward, kernel.default_options(problem), 2}}, results, refusals);
  for (const char* part : {" 1500 MHz\n", " 1750 MHz\n", "  3000\n", "  1750\n", "  -\n"}) {
    const std::string text = report.text.text();
    CAPTURE(text);
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(report.runs.at(1).passes.at(0).time->sm_clock_hz == 1.75e9);
  CHECK(!report.runs.at(2).passes.at(0).time->sm_clock_hz);
}

TEST_CASE("a matrix product that leaves the arithmetic units idle is called a weak baseline") {
  const AttentionProblem problem{.seqlen_q = 8, .seqlen_k = 8, .head_dim = 8};
  const Kernel& kernel = cpu_kernels().front();
  const std::vector<BenchmarkCase> cases = {
      {&kernel, problem, Direction::forward, kernel.default_options(problem), 2}};
  BenchmarkResults results;
  results.samples_s = {{1.0}};
  results.product_library = "OpenBLAS 0.3.21 Prescott";
  results.products = {{2, 1000, {1e-6}, 1.9e9}};  // 1 GFLOP/s of 1.9
  CHECK(cli::cpu_report(cases, results, {}).text.text().find("weak") == std::string::npos);
  results.products[0].fma_flops_per_second = 5e9;
  const std::string text = cli::cpu_report(cases, results, {}).text.text();
  for (const char* part : {"weak sgemm", "A weak baseline: it reaches 20.0 % of the 5"}) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  }
}

}  // namespace
}  // namespace tilescope
