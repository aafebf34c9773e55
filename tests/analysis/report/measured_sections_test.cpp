// SPDX-License-Identifier: Apache-2.0
// What counters measured, beside formulas, simulations and predictions.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <variant>

#include "analysis/report/sections/report_sections.hpp"
#include "common/number_format.hpp"
#include "tests/analysis/report/report_records.hpp"

namespace tilescope {
namespace {

using testing::contains;
using testing::fixed_record;
using testing::section_names;
using testing::simulated;

TEST_CASE("measured bytes stand beside the closed form") {
  RunEntry run = simulated(Algorithm::flash2, 128, {16, 16});
  for (PassRecord& pass : run.passes) {
    pass.measured = MeasuredBytes{pass.closed_form->sm_l2_read_bytes, pass.closed_form->sm_l2_write_bytes,
                                  pass.simulated->dram_read_bytes, pass.simulated->dram_write_bytes};
  }
  const std::string markdown = to_markdown(make_report({{fixed_record({run})}}), "f");
  CHECK(contains(markdown, "SM<->L2 measured"));
  CHECK(contains(markdown, "+0.000 %"));
  CHECK(contains(markdown, "4 of 4 rows, in which nothing is off at three digits, are left out."));
}

TEST_CASE("the overview: what must move, models and counters, of the longest problem of most kernels") {
  std::vector<RunEntry> runs;
  for (const Algorithm algorithm : {Algorithm::flash2, Algorithm::standard, Algorithm::flash1}) {
    for (const std::int64_t seqlen : {64, 128, 256}) {
      if (seqlen == 256 && algorithm == Algorithm::flash1) continue;
      RunEntry& run = runs.emplace_back(simulated(algorithm, seqlen, {16, 16}));
      run.kernel = "gpu:" + run.kernel.substr(4);
      run.runs_on = "gpu";
      for (PassRecord& pass : run.passes) pass.measured = MeasuredBytes{1 << 20, 1 << 20, 1 << 21, 1 << 21};
    }
  }
  runs.push_back(runs[1]);
  runs.back().kernel = "gpu:flash3";
  runs.back().algorithm = Algorithm::flash2;
  runs.back().scan = Scan::descending;  // its own choice
  const std::vector<RunRecord> records = {fixed_record(runs)}, one = {fixed_record({runs[0]})};
  const std::vector<RunSummary> all = summarize(records);
  const auto section = overview_section(all);
  REQUIRE(section);
  const auto& figure = std::get<Figure>(section->blocks.at(0));
  CHECK(contains(figure.caption, "N128"));
  const std::string svg = to_svg(figure);
  std::size_t at = 0;
  for (const char* text :
       {">gpu:standard: ", ">gpu:flash1: ", ">gpu:flash2: ", ">gpu:flash3 (descending): "}) {
    CAPTURE(text);
    CHECK(svg.find(text) != std::string::npos);
    CHECK(svg.find(text) > at);
    at = svg.find(text);
  }
  const RunSummary& flash2 = all[2];  // forward, the second length
  const double must = static_cast<double>(flash2.compulsory.total());
  CHECK(contains(svg, fmt::format(">gpu:flash2: SM&lt;-&gt;L2 {}, DRAM {}<", format_ratio((1 << 21) / must),
                                  format_ratio((1 << 22) / must))));
  CHECK_FALSE(overview_section(summarize(one)));
}

TEST_CASE("measured sweeps tell how far model and measurement differ, and how the bytes grow") {
  std::vector<RunEntry> runs;
  for (const std::int64_t seqlen : {2048, 4096, 8192}) {
    runs.push_back(simulated(Algorithm::flash2, seqlen, {128, 128}));
    RunEntry& run = runs.back();
    run.problem.batch = 8192 / seqlen;
    std::erase_if(run.passes, [](const PassRecord& pass) { return pass.direction == Direction::backward; });
    PassRecord& pass = run.passes.front();
    const double heads = static_cast<double>(run.problem.batch * run.problem.heads);
    const auto square = static_cast<std::int64_t>(heads * static_cast<double>(seqlen * seqlen));
    pass.closed_form = ClosedFormBytes{square, square, 1000, 1000};
    pass.measured = MeasuredBytes{square + square / 4, square, 2000, 0};
    pass.simulated->dram_read_bytes = seqlen == 8192 ? 3000 : 2000;
    pass.launch = LaunchRecord{{square / 32, 1, 1}, {8, 1, 1}, 255, 0};
    pass.measured->sm_l2_write_bytes = square * 2;
  }
  const Document document = make_report({{fixed_record(runs)}});
  const std::string markdown = to_markdown(document, "f");
  CHECK(section_names(document).count("measured") == 1);
  CHECK(section_names(document).count("growth") == 1);
  CHECK(contains(markdown, "| +25.000 % | +100.000 % | 4.0 |"));
  CHECK(contains(markdown, "| does not | 3 | 0.0 % | 2 of 3 | 2 of 3 | +50.0 % |"));
  CHECK(contains(markdown, "| forward | 1 | 2K ... 8K | 2.000 ... 2.000 | 0.000 |"));
  constexpr const char* kWhyBelow = "Below 1.00x a launch found inputs in an L2 that was not cold.";
  for (RunEntry& run : runs) run.problem.batch = 1;
  CHECK_FALSE(contains(to_markdown(make_report({{fixed_record(runs)}}), "f"), kWhyBelow));
  runs[1].passes.front().measured->dram_read_bytes = 500;
  CHECK(contains(to_markdown(make_report({{fixed_record(runs)}}), "f"), kWhyBelow));
}

/// A forward run whose one pass reads so many bytes from DRAM, on the model or on a device.
RunEntry reading(std::int64_t dram_bytes, bool measured, std::optional<Scan> scan) {
  RunEntry run = simulated(Algorithm::flash2, 2048, {128, 128});
  run.kernel = "gpu:flash2-mma";
  run.runs_on = "gpu";
  run.scan = scan;
  std::erase_if(run.passes, [](const PassRecord& pass) { return pass.direction == Direction::backward; });
  PassRecord& pass = run.passes.front();
  pass.simulated->dram_read_bytes = dram_bytes;
  if (measured) pass.measured = MeasuredBytes{1, 1, dram_bytes, 0};
  return run;
}

TEST_CASE(
    "what was simulated and then measured is shown, choice beside choice, the other way round it is not") {
  RunRecord predicted = fixed_record({reading(2000, false, {}), reading(1000, false, Scan::sawtooth)});
  RunRecord measured = fixed_record({reading(1600, true, {}), reading(1250, true, Scan::sawtooth)});
  predicted.when = "2026-01-01T00:00:00Z";
  measured.when = "2026-01-02T00:00:00Z";
  const Document document = make_report({{predicted, measured}});
  CHECK(section_names(document).count("predictions") == 1);
  CHECK(contains(to_markdown(document, "f"),
                 "| 2 kB | 1.600 kB | +25.0 % | 1 kB | 1.250 kB | -20.0 % | 0.50x | 0.78x | - |"));
  std::swap(predicted.when, measured.when);
  CHECK(section_names(make_report({{predicted, measured}})).count("predictions") == 0);
}

/// A pass of which the model says that it fits and reads 1000 bytes from DRAM, where 1200 were measured.
RunEntry off_by_200() {
  RunEntry run = reading(1000, true, {});
  PassRecord& pass = run.passes.front();
  pass.closed_form = ClosedFormBytes{100000, 1, 1000, 1000};
  pass.measured = MeasuredBytes{1, 1, 1200, 0};
  return run;
}

/// The table of DRAM reads.
Table dram_reads(const std::vector<RunEntry>& runs, const std::vector<NoiseFloor>& noise_floor) {
  const std::vector<RunRecord> records = {fixed_record(runs)};
  const auto section = measured_section(summarize(records), noise_floor);
  REQUIRE(section);
  for (const Block& block : section->blocks) {
    const auto* table = std::get_if<Table>(&block);
    if (table && table->caption.starts_with("Simulated against")) return *table;
  }
  FAIL("no table of DRAM reads");
  return {};
}

std::string cell(const Table& table, std::size_t row, const std::string& column) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].header == column) return table.rows.at(row).at(i);
  }
  return "no such column";
}

bool within(const RunEntry& run, const std::vector<NoiseFloor>& noise_floor = {}) {
  return cell(dram_reads({run}, noise_floor), 0, "within") == "1 of 1";
}

TEST_CASE(
    "DRAM reads past the tolerance agree if launches, fetched code or the noise floor account for them") {
  CHECK_FALSE(within(off_by_200()));
  const auto ranging = [](std::int64_t least, std::int64_t largest) {
    RunEntry run = off_by_200();
    run.passes.front().measured->dram_read_range = {least, largest};
    return run;
  };
  CHECK(within(ranging(900, 1300)));
  CHECK(within(ranging(1000, 1300)));
  CHECK_FALSE(within(ranging(1001, 1300)));
  CHECK_FALSE(within(ranging(900, 999)));
  const auto fetching = [](std::int64_t bytes) {
    RunEntry run = off_by_200();
    run.passes.front().measured->instruction_fetch_bytes = bytes;
    return run;
  };
  CHECK(within(fetching(141)));
  CHECK_FALSE(within(fetching(139)));
  CHECK_FALSE(within(fetching(400)));
  const std::vector<NoiseFloor> noise_floor = {{kAsleep, 1, 100}, {kAsleep, 2, 200}};
  CHECK_FALSE(within(off_by_200(), noise_floor));  // nobody knows how long it took
  const auto lasting = [](double seconds) {
    RunEntry run = off_by_200();
    run.passes.front().time = TimeRecord{seconds, seconds, 0, {seconds}};
    return run;
  };
  CHECK(within(lasting(2), noise_floor));
  CHECK_FALSE(within(lasting(2)));
  CHECK(within(lasting(1.41), noise_floor));  // 5 % of 1200 are left
  CHECK_FALSE(within(lasting(1.39), noise_floor));
  RunEntry counted = off_by_200();
  counted.passes.front().counters["gpu__time_duration.sum"] = std::int64_t{2'000'000'000};
  CHECK(within(counted, noise_floor));
  RunEntry often = lasting(1);
  often.passes.front().measured->dram_read_range = {1100, 1300};
  CHECK(within(often, noise_floor));
  often.passes.front().measured->dram_read_range = {1101, 1300};
  CHECK_FALSE(within(often, noise_floor));
  RunEntry less = lasting(2);  // a device adds reads, and takes none away
  less.passes.front().measured->dram_read_bytes = 900;
  CHECK_FALSE(within(less, noise_floor));
}

TEST_CASE("the table of DRAM reads counts what agrees, and launches that differ by more than the tolerance") {
  const std::vector<NoiseFloor> noise_floor = {{kAsleep, 1, 200}};
  std::vector<RunEntry> runs(4, off_by_200());
  runs[0].passes.front().measured->dram_read_range = {900, 1300};
  runs[1].passes.front().measured->instruction_fetch_bytes = 200;
  runs[2].passes.front().time = TimeRecord{1, 1, 0, {1}};
  runs[3].passes.front().measured->dram_read_range = {1190, 1210};
  const Table table = dram_reads(runs, noise_floor);
  REQUIRE(table.rows.size() == 2);
  for (const auto& row : table.rows) CHECK(row.size() == table.columns.size());
  CHECK(cell(table, 0, "within by its median") == "1 of 4");
  CHECK(cell(table, 0, "within") == "3 of 4");
  CHECK(cell(table, 0, "launches differ") == "1 of 2");
  CHECK(cell(table, 0, "largest") == "-16.7 %");
  CHECK(cell(table, 1, "within") == "**3 of 4**");
  CHECK(cell(table, 1, "launches differ") == "1 of 2");
  CHECK(contains(table.caption, "the smallest and the largest reads of its launches"));
  CHECK_FALSE(contains(table.caption, "load"));
  CHECK(contains(dram_reads(runs, {{kAsleep, 1, 100}, {"busy", 1, 200}}).caption, "the load that makes"));
  const Table older = dram_reads({off_by_200()}, {});
  CHECK(cell(older, 0, "launches differ") == "no such column");
  CHECK_FALSE(contains(older.caption, "launches"));
}

TEST_CASE("runs with pages at random places have rows of their own in the table of DRAM reads") {
  std::vector<RunEntry> runs(2, off_by_200());
  runs[1].pages = PagePlacement::random;
  runs[1].passes.front().measured->dram_read_range = {900, 1300};
  const Table table = dram_reads(runs, {});
  REQUIRE(table.rows.size() == 3);
  CHECK(cell(table, 0, "within") == "0 of 1");
  CHECK(cell(table, 1, "kernel") == cell(table, 0, "kernel") + ", random pages");
  CHECK(cell(table, 1, "within") == "1 of 1");
  CHECK(contains(table.caption, "every page of the tensors lay at a random place"));
  CHECK_FALSE(contains(dram_reads({runs[0]}, {}).caption, "random place"));
}

TEST_CASE("passes that read every byte once are no test of a model, and a case of two records counts once") {
  RunEntry copy = off_by_200();
  copy.passes.front().closed_form->sm_l2_read_bytes = 1050;
  CHECK(cell(dram_reads({off_by_200(), copy}, {}), 0, "cases") == "1");
  RunRecord older = fixed_record({off_by_200()}), newer = fixed_record({off_by_200()});
  newer.when = "2026-01-01T00:00:00Z";
  newer.runs[0].passes.front().measured->dram_read_bytes = 1000;
  const std::vector<RunRecord> records = {newer, older};
  const auto section = measured_section(summarize(records));
  REQUIRE(section);
  CHECK(contains(to_markdown({"", "", {*section}}, "f"), "| **1 of 1** |"));
}

TEST_CASE("held-out problems are scored, the worst first") {
  const auto off_by = [](std::int64_t measured) {
    RunEntry run = reading(3000, true, {});
    PassRecord& pass = run.passes.front();
    pass.closed_form = ClosedFormBytes{9000, 1, 1000, 1000};
    pass.measured = MeasuredBytes{9000, 1, measured, 0};
    return run;
  };
  RunEntry once = off_by(1000), at_floor = off_by(1000);
  once.passes.front().closed_form->sm_l2_read_bytes = 1000;
  at_floor.passes.front().simulated->dram_read_bytes = 1000;
  ReportRecords records;
  records.holdout = {fixed_record({off_by(3000), off_by(2000), off_by(4000), once, at_floor})};
  const Document document = make_report(records);
  REQUIRE(document.verdicts.size() == 1);
  CHECK(document.verdicts[0].figures() == "1 of 3, at worst +50.0 %");
  CHECK(document.verdicts[0].outcome == Outcome::bad);
  CHECK(document.sections[0].name == "holdout");
  const std::string text = to_markdown(document, "f");
  for (const char* part :
       {"**1 of 3 passes are within 15 %** of the measured DRAM reads, half are within 25.0 %, and the worst "
        "is off by +50.0 %",
        "Left out are 1 pass that read every byte once",
        "and 1 whose reads stay at what must be read, as the model says", "| forward | **+50.0 %** |",
        "| 3 kB |", " numbers of 7 kinds, each kind with its source", "younger_rate", "NVIDIA H200 SXM"}) {
    CAPTURE(part);
    CHECK(contains(text, part));
  }
  CHECK(text.find("**+50.0 %**") < text.find("**-25.0 %**"));
  CHECK(text.find("**-25.0 %**") < text.find("| +0.0 % |"));
}

TEST_CASE("bytes beyond the closed form are laid to the counters that saw them") {
  RunEntry run = reading(100, true, {});
  PassRecord& pass = run.passes.front();
  pass.closed_form = ClosedFormBytes{10000, 1000, 100, 100};
  pass.measured = MeasuredBytes{10300, 1600, 100, 100};
  pass.counters = {{"smsp__sass_data_bytes_mem_global_op_st.sum", std::int64_t{1000}},
                   {"l1tex__m_l1tex2xbar_write_bytes_mem_lg_op_st.sum", std::int64_t{1500}},
                   {"l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum", std::int64_t{400}},
                   {"l1tex__t_bytes_pipe_lsu_mem_local_op_ld_lookup_miss.sum", std::int64_t{350}},
                   {"l1tex__t_bytes_pipe_lsu_mem_global_op_ld_lookup_hit.sum", std::int64_t{70}}};
  const Document document = make_report({{fixed_record({run})}});
  CHECK(section_names(document).count("account") == 1);
  const std::string text = to_markdown(document, "f");
  CHECK(contains(text, "| +3.000 % | served by L1 -0.700 %, spills read back +3.500 % | +0.200 % |"));
  CHECK(contains(text, "| +60.000 % | partly written sectors +10.000 %, spills +40.000 % | +10.000 % |"));
}

TEST_CASE("what an L2 keeps is drawn, and the footprint of which it keeps half is told") {
  CeilingsRecord record{{"tilescope", "ceilings"}, "2026-01-01T00:00:00Z", {}};
  record.measured.device = "Toy";
  record.measured.l2_bytes = 64 << 20;
  for (const auto& [mebi, kept] : {std::pair{16, 1.0}, {32, 0.75}, {48, 0.25}}) {
    record.measured.l2.push_back({kReadByAll, std::int64_t{mebi} << 20, kept});
  }
  const std::string text = to_markdown(make_report({.runs = {}, .ceilings = {record}}), "f");
  CHECK(contains(text, "| read by all SMs | 40 MiB | 62.5 % |"));
  CHECK(contains(text, "l2-residency.svg"));
  for (const char* absent : {kReadByOne, kReadByPartition, kReadRandom, "beside partition", "asleep for"}) {
    CAPTURE(absent);
    CHECK_FALSE(contains(text, absent));
  }
}

TEST_CASE("partitions of an L2 and the noise floor stand beside what it keeps") {
  CeilingsRecord record{{"tilescope", "ceilings"}, "2026-01-01T00:00:00Z", {}};
  record.measured.device = "Toy";
  record.measured.l2_bytes = 64 << 20;
  record.measured.l2_partitions = {{{8, 0}, {50, 0}, {58, 1}}};
  record.measured.noise_floor = {{kAsleep, 1e-3, 30000}, {kAsleep, 1.0, 600000}};
  const auto markdown = [](const CeilingsRecord& of) {
    return to_markdown(make_report({.runs = {}, .ceilings = {of}}), "f");
  };
  std::string text = markdown(record);
  CHECK_FALSE(contains(text, "l2-residency.svg"));
  CHECK(contains(text, "58 SMs stand beside partition 0, 58 SMs stand beside partition 1."));
  CHECK(contains(text, "| 8 ... 57 | 50 | 0 |"));
  CHECK(contains(text, "| 1 ms | 30 kB | 30 MB |"));
  for (const char* access : {kReadByAll, kReadByOne, kReducedByOne, kReadByPartition, kReadRandom}) {
    for (const auto& [mebi, kept] : {std::pair{16, 1.0}, {32, 0.75}, {48, 0.25}}) {
      record.measured.l2.push_back({access, std::int64_t{mebi} << 20, kept});
    }
  }
  text = markdown(record);
  CHECK(contains(text, "| read by the SMs of one partition | 22.40 MiB | 40 MiB | 62.5 % |"));
  CHECK(contains(text, "| pieces at random places read by all SMs | 22.40 MiB | 40 MiB | 62.5 % |"));
  record.measured.l2_partitions = {{{116, 0}}};
  CHECK(contains(markdown(record), "tell no partitions of the L2 apart"));
  record.measured.noise_floor.push_back({"busy", 1.0, 700000});
  text = markdown(record);
  CHECK(contains(text, "| for | asleep | busy |"));
  CHECK(contains(text, "| 1 ms | 30 kB | - |"));
  CHECK(contains(text, "| 1 s | 600 kB | 700 kB |"));
}

}  // namespace
}  // namespace tilescope
