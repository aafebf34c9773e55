// SPDX-License-Identifier: Apache-2.0
// The report: what its writers let through, which sections and figures appear, and that equal records give
// equal bytes.
#include "analysis/report/report.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "analysis/error_study.hpp"
#include "analysis/report/generated_text.hpp"
#include "analysis/report/sweep.hpp"
#include "analysis/report_format.hpp"
#include "analysis/simulate_run.hpp"
#include "analysis/study.hpp"
#include "cpu_ref/errors.hpp"

namespace tilescope {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

RunEntry simulated(Algorithm algorithm, std::int64_t seqlen, TileShape tile) {
  const auto kernel = std::find_if(cpu_kernels().begin(), cpu_kernels().end(),
                                   [algorithm](const Kernel& k) { return k.algorithm == algorithm; });
  AttentionProblem problem;
  problem.heads = problem.heads_kv = 2;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.dtype = ElementType::fp16;
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.backward = BackwardOrder::fused;
  const Machine machine = load_machine("h200");
  const Direction both[] = {Direction::forward, Direction::backward};
  return simulate_run(*kernel, problem, plan_passes(*kernel, problem, both, options, machine), machine);
}

RunRecord record_of(std::vector<RunEntry> runs) {
  RunRecord record;
  record.argv = {"/somewhere/tilescope", "simulate", "--causal", "--json", "here.json", "a b"};
  record.git.sha = "0123456789abcdef";
  record.when = "2025-01-01T00:00:00Z";
  record.runs = std::move(runs);
  return record;
}

/// Three algorithms at three lengths and three tiles: two sweeps, and two runs in neither.
std::vector<RunRecord> sweep_records() {
  std::vector<RunEntry> by_length, by_tile;
  for (const Algorithm algorithm : {Algorithm::standard, Algorithm::flash1, Algorithm::flash2}) {
    for (const std::int64_t seqlen : {256, 64, 128})
      by_length.push_back(simulated(algorithm, seqlen, {16, 16}));
    for (const int block : {8, 16, 32}) by_tile.push_back(simulated(algorithm, 192, {block, block}));
  }
  return {record_of(by_length), record_of(by_tile),
          record_of(
              {simulated(Algorithm::standard, 100, {24, 24}), simulated(Algorithm::flash2, 100, {24, 24})})};
}

std::set<std::string> section_names(const Document& document) {
  std::set<std::string> names;
  for (const Section& section : document.sections) names.insert(section.name);
  return names;
}

std::vector<const Figure*> figures(const Document& document) {
  std::vector<const Figure*> all;
  for (const Section& section : document.sections) {
    for (const Block& block : section.blocks) {
      if (const Figure* figure = std::get_if<Figure>(&block)) all.push_back(figure);
    }
  }
  return all;
}

Document small_document() {
  Table table{"", {{"a"}, {"b", true}}, {{"x|y", "1"}, {"heading"}}};
  Figure figure{
      "fig", "A <figure>.", "See `it`.", {"run it"}, "<?xml?>\n<svg width=\"1\"><use href='#p'/></svg>"};
  return {"T & t",
          "Lead **strong** SM<->L2 [there](address).",
          {{"one", "One", {Paragraph{"a < b"}, table, figure}}, {"two", "Two", {Bullets{{"item"}}}}}};
}

}  // namespace

TEST_CASE("HTML escapes text, keeps inline marks and makes SVG ids unique") {
  const std::string html = to_html(small_document());
  for (const char* part :
       {"<title>T &amp; t</title>", "<strong>strong</strong>", "SM&lt;-&gt;L2",
        "<a href=\"address\">there</a>", "a &lt; b", "A &lt;figure&gt;.", "<code>it</code>", "href='#fig-p'",
        "<th colspan=\"2\">heading</th>", "<td class=\"number\">1</td>"}) {
    CAPTURE(part);
    CHECK(contains(html, part));
  }
  for (const char* part : {"<script", "src=", "@import", "<?xml", "url(http"}) {
    CAPTURE(part);
    CHECK_FALSE(contains(html, part));
  }
}

TEST_CASE("Markdown escapes bars in cells and links figures") {
  const std::string markdown = to_markdown(small_document(), "figures");
  CHECK(contains(markdown, "| x\\|y | 1 |\n"));
  CHECK(contains(markdown, "| **heading** | |\n"));
  CHECK(contains(markdown, "![A <figure>.](figures/fig.svg)"));
}

TEST_CASE("numbers print with four significant digits and a unit") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(999) == "999 B");
  CHECK(format_bytes(4362076160.0) == "4.362 GB");
  CHECK(format_bytes(999960) == "1.000 MB");
  CHECK(format_flops(2.2e12) == "2.200 TFLOP");
  CHECK(format_ratio(4.361) == "4.36x");
  CHECK(format_ratio(1531.2) == "1531x");
  CHECK(format_length(131072) == "128K");
  CHECK(format_length(1000) == "1000");
  CHECK(format_capacity(50 << 20) == "50 MiB");
  CHECK(format_number(1.25e-5) == "1.25e-05");
  CHECK(short_tick("2.500 GB") == "2.5 GB");
  CHECK(short_tick("10.00x") == "10.00x");
}

TEST_CASE("generated parts are replaced, and only they") {
  const Document document = small_document();
  const std::string text =
      "before\n<!-- generated: fig -->\nold\n<!-- /generated -->\nbetween\n"
      "<!-- generated: two -->\n<!-- /generated -->\nafter\n";
  const std::string filled = fill_generated_parts("README.md", text, document, "reports/figures");
  CHECK(filled.starts_with("before\n<!-- generated: fig -->\n\n![A <figure>.](reports/figures/fig.svg)"));
  CHECK(contains(filled,
                 "<!-- /generated -->\nbetween\n<!-- generated: two -->\n\n- item\n\n<!-- /generated -->"));
  CHECK(filled.ends_with("after\n"));
  CHECK_FALSE(contains(filled, "old"));
  CHECK(fill_generated_parts("README.md", filled, document, "reports/figures") == filled);
  const auto complaint = [&document](const std::string& bad) -> std::string {
    try {
      fill_generated_parts("README.md", bad, document, "f");
    } catch (const BadInput& error) {
      return error.what();
    }
    return "";
  };
  CHECK(contains(complaint("<!-- generated: fog -->\n<!-- /generated -->"), "fog"));
  CHECK(contains(complaint("<!-- generated: fog -->\n<!-- /generated -->"), "fig"));
  CHECK(contains(complaint("<!-- generated: fig -->"), "must be closed"));
  CHECK(contains(complaint("<!-- generated: fig --> <!-- generated: one --> <!-- /generated -->"),
                 "must be closed"));
}

TEST_CASE("sweeps are found, sorted, and leave the other runs to the tables") {
  const std::vector<RunRecord> records = sweep_records();
  const std::vector<RunSummary> runs = summarize(records);
  const std::vector<Sweep> lengths = seqlen_sweeps(runs), tiles = tile_sweeps(runs);
  REQUIRE(lengths.size() == 2);  // forward and backward
  REQUIRE(tiles.size() == 2);
  for (const Sweep& sweep : lengths) {
    REQUIRE(sweep.series.size() == 3);
    CHECK(sweep.series[0].label == "standard");
    for (const SweepSeries& series : sweep.series) {
      REQUIRE(series.points.size() >= 3);
      CHECK(std::is_sorted(series.points.begin(), series.points.end(), [](const auto* a, const auto* b) {
        return a->problem().seqlen_q < b->problem().seqlen_q;
      }));
    }
  }
  const std::vector<const RunSummary*> headlines = headline_runs(runs);
  CHECK(headlines.size() == 4);
  for (const RunSummary* run : headlines) CHECK(run->problem().seqlen_q == 100);
  CHECK(headline_runs(summarize({records[0]})).size() == 6);  // the last point of each series
}

TEST_CASE("sections appear when their data are there") {
  const Document everything = make_report({sweep_records()});
  CHECK(section_names(everything) == std::set<std::string>{"summary", "tensors", "seqlen", "block-size", "l2",
                                                           "roofline", "passes", "records"});
  CHECK(section_names(make_report({{record_of({})}})) == std::set<std::string>{"records"});
  std::set<std::string> names;
  for (const Figure* figure : figures(everything)) {
    CAPTURE(figure->name);
    CHECK(names.insert(figure->name).second);
    CHECK(contains(figure->svg, "</svg>"));
    CHECK(reproduction(figure->commands) ==
          std::vector<std::string>{"./tilescope simulate --causal 'a b' --json run.json",
                                   "./tilescope report run.json"});
  }
  CHECK(names.size() == 11);

  RunEntry judged = simulated(Algorithm::flash2, 64, {16, 16});
  for (PassRecord& pass : judged.passes) pass.simulated.reset();
  judged.error["o"] = {.max_abs = 3e-3, .rmse = 1e-4, .max_ulp = 2, .non_finite = 0, .bound = 2e-3};
  const Document verdicts = make_report({{record_of({judged})}});
  CHECK(section_names(verdicts) == std::set<std::string>{"errors", "records"});
  CHECK(contains(to_markdown(verdicts, "f"), "| cpu:flash2 | fp16 | 1 | **1** | 1.50 |"));

  RunEntry timed;
  timed.problem = judged.problem;
  timed.kernel = "cpu:flash2";
  PassRecord& pass = timed.passes.emplace_back();
  pass.name = "delta+dkdvdq+convert";
  pass.direction = Direction::backward;
  pass.time = TimeRecord{2e-3, 1e-3, 0.05, {2e-3}};
  const double rate = static_cast<double>(useful_flops(timed.problem, Direction::backward)) / 2e-3;
  pass.counters = {{"threads", std::int64_t{2}}, {"sgemm_flops_per_second", 2 * rate}};
  const Document speed = make_report({{record_of({timed})}});
  CHECK(section_names(speed) == std::set<std::string>{"speed", "records"});
  const std::string markdown = to_markdown(speed, "f");
  for (const char* part : {"| flash2 fused |", "| 2 | 2 ms | 5.0 % |", "| 50.0 % |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

/// A run of `bench` on a device at that rate by the papers' count.
RunEntry device_run(const std::string& kernel, std::int64_t seqlen, double flops_per_second) {
  RunEntry run;
  run.problem = {.seqlen_q = seqlen, .seqlen_k = seqlen, .head_dim = 128, .dtype = ElementType::fp16};
  run.kernel = kernel;
  PassRecord& pass = run.passes.emplace_back();
  pass.name = "forward";
  if (!kernel.starts_with("gpu:")) pass.tile = kUnknownTile;
  const double seconds = static_cast<double>(paper_flops(run.problem, Direction::forward)) / flops_per_second;
  pass.time = TimeRecord{seconds, seconds, 0, {seconds}};
  return run;
}

TEST_CASE("rates on a device stand beside the peers' of the same record, with geometric means") {
  std::vector<RunEntry> runs;
  for (const std::int64_t seqlen : {512, 1024, 2048}) {
    runs.push_back(device_run("gpu:flash2-mma", seqlen, 300e12));
    runs.push_back(device_run("pytorch:flash2", seqlen, seqlen == 512 ? 75e12 : 300e12));
  }
  runs.push_back(device_run("pytorch:cudnn", 512, 600e12));
  RunRecord record = record_of(runs);
  record.machine.name = "NVIDIA H200";
  record.machine.libraries = "PyTorch 9";
  const Document document = make_report({{record}});
  CHECK(section_names(document) == std::set<std::string>{"device-speed", "device-rates", "records"});
  const std::string markdown = to_markdown(document, "f");
  for (const char* part :
       {"PyTorch 9", "3 problems", "| gpu:flash2-mma | 128 | none | 1.59 | 0.50 |",  // 4^(1/3)
        "| B1 H1 N512 D128 fp16 | 300.0 | 75.0 | 600.0 |", "| 300.0 | 300.0 | - |",
        "rate-against-seqlen-forward.svg"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }

  RunRecord alone = record_of({device_run("gpu:flash2-simt", 512, 30e12)});
  alone.runs[0].problem.dtype = ElementType::fp32;
  alone.machine.name = "NVIDIA H200";
  const Document rates = make_report({{alone}});
  CHECK(section_names(rates) == std::set<std::string>{"device-rates", "records"});
  CHECK(contains(to_markdown(rates, "f"), "| 30.0 | 44.8 % |"));  // of 66.9 TFLOP/s
}

TEST_CASE("kernels of other commands are grouped by name and geometry") {
  KernelRecord record;
  record.argv = {"tilescope", "profile", "--json", "k.json", "--", "python3", "train.py", "--out", "there"};
  KernelMeasurement kernel;
  kernel.name = "void attention<float>(float*)";
  kernel.launch.grid = {10, 2, 1};
  kernel.measured = {{"sm_l2_read_bytes", 1e6}};
  record.kernels = {kernel, kernel};
  record.kernels[1].measured["sm_l2_read_bytes"] = 3e6;
  record.messages = {"counters were lost"};
  const Document document = make_report({.runs = {}, .kernels = {record}});
  CHECK(section_names(document) == std::set<std::string>{"kernels"});
  const std::string markdown = to_markdown(document, "f");
  for (const char* part :
       {"./tilescope profile -- python3 train.py --out there", "Not complete", "- counters were lost",
        "| `attention<float>` | 2 | 10x2x1 | 1x1x1 | - | 2 MB | - | - | - | - |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

TEST_CASE("of many problems the largest have charts, and all a row") {
  std::vector<RunEntry> runs;
  for (const int heads : {3, 6, 1, 5, 2, 4}) {
    runs.push_back(simulated(Algorithm::flash2, 64, {16, 16}));
    runs.back().problem.heads = runs.back().problem.heads_kv = heads;  // its bytes are of no interest here
  }
  const Document document = make_report({{record_of(runs)}});
  std::set<std::string> names;
  for (const Figure* figure : figures(document)) names.insert(figure->name);
  CHECK(names.contains("roofline-forward-4"));
  CHECK(names.contains("softmax-roofline-backward-4"));
  CHECK_FALSE(names.contains("roofline-forward-5"));
  const std::string markdown = to_markdown(document, "f");
  const std::size_t roofline = markdown.find("## Roofline"), end = markdown.find("## Every pass");
  const std::string section = markdown.substr(roofline, end - roofline);
  for (const int heads : {1, 2}) {
    CHECK(contains(section, "| **B1 H" + std::to_string(heads) + " N64 D64 fp16** |"));
  }
  for (const int heads : {3, 4, 5, 6}) {
    CHECK(contains(section, "B1 H" + std::to_string(heads) + " N64 D64 fp16"));
    CHECK_FALSE(contains(section, "| **B1 H" + std::to_string(heads) + " N64"));
  }
}

TEST_CASE("equal records give equal bytes, free of this machine") {
  const std::vector<RunRecord> records = sweep_records();
  const std::vector<ReportFile> once = report_files(make_report({records}));
  const std::vector<ReportFile> again = report_files(make_report({records}));
  REQUIRE(once.size() == again.size());
  for (std::size_t i = 0; i < once.size(); ++i) {
    CAPTURE(once[i].path);
    CHECK(once[i].path == again[i].path);
    CHECK(once[i].contents == again[i].contents);
    CHECK_FALSE(contains(once[i].contents, std::filesystem::temp_directory_path().string() + "/"));
    CHECK_FALSE(contains(once[i].contents, TILESCOPE_SOURCE_DIR));
  }
}

TEST_CASE("measured bytes stand beside the closed form") {
  RunEntry run = simulated(Algorithm::flash2, 128, {16, 16});
  for (PassRecord& pass : run.passes) {
    pass.measured = MeasuredBytes{pass.closed_form->sm_l2_read_bytes, pass.closed_form->sm_l2_write_bytes,
                                  pass.simulated->dram_read_bytes, pass.simulated->dram_write_bytes};
  }
  const std::string markdown = to_markdown(make_report({{record_of({run})}}), "f");
  CHECK(contains(markdown, "SM<->L2 measured"));
  CHECK(contains(markdown, "+0.000 %"));
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
  const Document document = make_report({{record_of(runs)}});
  const std::string markdown = to_markdown(document, "f");
  CHECK(section_names(document).count("measured") == 1);
  CHECK(section_names(document).count("growth") == 1);
  CHECK(contains(markdown, "| +25.000 ... +25.000 % | +100.000 ... +100.000 % | 4.0 ... 4.0 |"));
  CHECK(contains(markdown, "| does not | 3 | 0.0 % | 2 of 3 | +50.0 % |"));
  CHECK(contains(markdown, "| 3, 2K ... 8K | 2.000 | 2.000 |"));
}

/// A forward run whose one pass reads so many bytes from DRAM, on the model or on a device.
RunEntry reading(std::int64_t dram_bytes, bool measured, std::optional<Scan> scan) {
  RunEntry run = simulated(Algorithm::flash2, 2048, {128, 128});
  run.kernel = "gpu:flash2-mma";
  run.scan = scan;
  std::erase_if(run.passes, [](const PassRecord& pass) { return pass.direction == Direction::backward; });
  PassRecord& pass = run.passes.front();
  pass.simulated->dram_read_bytes = dram_bytes;
  if (measured) pass.measured = MeasuredBytes{1, 1, dram_bytes, 0};
  return run;
}

TEST_CASE(
    "what was simulated and then measured is shown, choice beside choice; the other way round it is not") {
  RunRecord predicted = record_of({reading(2000, false, {}), reading(1000, false, Scan::sawtooth)});
  RunRecord measured = record_of({reading(1600, true, {}), reading(1250, true, Scan::sawtooth)});
  predicted.when = "2026-01-01T00:00:00Z";
  measured.when = "2026-01-02T00:00:00Z";
  const Document document = make_report({{predicted, measured}});
  CHECK(section_names(document).count("predictions") == 1);
  CHECK(contains(to_markdown(document, "f"),
                 "| 2 kB | 1.600 kB | +25.0 % | 1 kB | 1.250 kB | -20.0 % | 0.50x | 0.78x | - |"));
  std::swap(predicted.when, measured.when);
  CHECK(section_names(make_report({{predicted, measured}})).count("predictions") == 0);
}

TEST_CASE("bytes beyond the closed form are laid to the counters that saw them") {
  RunEntry run = reading(100, true, {});
  PassRecord& pass = run.passes.front();
  pass.closed_form = ClosedFormBytes{10000, 1000, 100, 100};
  pass.measured = MeasuredBytes{10300, 1600, 100, 100};
  pass.counters = {
      {"smsp__sass_data_bytes_mem_global_op_st.sum", std::int64_t{1000}},
      {"l1tex__m_l1tex2xbar_write_bytes_mem_lg_op_st.sum", std::int64_t{1500}},
      {"l1tex__t_bytes_pipe_lsu_mem_local_op_st.sum", std::int64_t{400}},
      {"l1tex__t_bytes_pipe_lsu_mem_local_op_ld_lookup_miss.sum", std::int64_t{350}},
      {"l1tex__t_bytes_pipe_lsu_mem_global_op_ld_lookup_hit.sum", std::int64_t{40}},
      {"l1tex__t_bytes_pipe_lsu_mem_global_op_ldgsts_cache_access_lookup_hit.sum", std::int64_t{30}}};
  const Document document = make_report({{record_of({run})}});
  CHECK(section_names(document).count("account") == 1);
  const std::string text = to_markdown(document, "f");
  CHECK(contains(
      text,
      "| +3.000 ... +3.000 % | served by L1 -0.700 %, spills read back +3.500 % | +0.200 ... +0.200 % |"));
  CHECK(contains(text,
                 "| +60.000 ... +60.000 % | partly written sectors +10.000 %, spills +40.000 % | +10.000 ... "
                 "+10.000 % |"));
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
}

TEST_CASE("without gnuplot nothing is written, and the package is named") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / "tilescope_report_test_absent";
  std::filesystem::remove_all(folder);
  const std::string path = getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  std::string message;
  try {
    write_report({sweep_records()}, folder.string());
  } catch (const MachineLacks& error) {
    message = error.what();
  }
  setenv("PATH", path.c_str(), 1);
  CHECK(contains(message, "gnuplot-nox"));
  CHECK_FALSE(std::filesystem::exists(folder));
}

TEST_CASE("every study plans tasks on its machine, and each first task runs") {
  for (const Study& study : studies()) {
    CAPTURE(std::string(study.name));
    CHECK(&find_study(study.name) == &study);
    const Machine machine =
        study.default_machine.empty() ? Machine{} : load_machine(std::string(study.default_machine));
    const std::vector<StudyTask> tasks = study.plan(machine);
    CHECK(tasks.size() >= 3);
    for (const StudyTask& task : tasks) CHECK_FALSE(task.label.empty());
  }
  CHECK_THROWS_AS(find_study("seqlem"), BadInput);
  const Machine machine = load_machine("h200");
  const std::vector<RunEntry> runs = find_study("seqlen").plan(machine).front().run();
  REQUIRE(runs.size() == 1);
  CHECK(runs[0].passes.front().simulated->machine == "h200");
}

TEST_CASE("the paper's Figure 2 is recounted to the digits that hold") {
  const Machine machine = load_machine("a100-40gb");
  std::vector<RunEntry> runs;
  for (const StudyTask& task : find_study("paper-figure2").plan(machine)) {
    for (RunEntry& run : task.run()) runs.push_back(std::move(run));
  }
  const std::string markdown = to_markdown(make_report({{record_of(runs)}}), "f");
  for (const char* part :
       {"824.6 / 962.1", "12.4x and 12.8x", "40.27 / 4.43", "| 6.6 | 6.58 |", "| 0.9 | 0.94 |"}) {
    CAPTURE(part);
    CHECK(contains(markdown, part));
  }
}

TEST_CASE("what verify found of GPU kernels has columns and a section of its own") {
  RunEntry run = simulated(Algorithm::flash2, 64, {16, 16});
  run.kernel = "gpu:flash2-mma";
  run.error = {{"o", {1e-3, 1e-4, 2, 0, 2e-3}}};
  const std::string without = to_markdown(make_report({{record_of({run})}}), "figures");
  CHECK(contains(without, "| gpu:flash2-mma | fp16 | 1 | 0 | 0.50 |"));
  CHECK_FALSE(contains(without, "against mirror"));
  CHECK_FALSE(contains(without, "Are the results the same every time?"));
  run.cases = 12;
  run.failed = 1;
  run.mirror_error = {{"o", {1e-3, 1e-4, 2, 0, 4e-3, 5e-4}}};
  run.repeats = {{"o", {100, 0, 0, 2e-3, false}}, {"dq", {100, 99, 1e-4, 1e-3, true}}};
  const std::string with = to_markdown(make_report({{record_of({run})}}), "figures");
  CHECK(contains(with, "| gpu:flash2-mma | fp16 | 12 | **1** | 0.50 |"));
  CHECK(contains(with, "| 0.25 | 0.20 |"));
  CHECK(contains(with, "| dq | 1 | 100 | 99 | 0.100 | free (atomic adds) |"));
  CHECK(contains(with, "| o | 1 | 100 | 0 | - | fixed |"));
  run.repeats["dq"].may_differ = false;
  CHECK(contains(to_markdown(make_report({{record_of({run})}}), "figures"), "| **99** |"));
}

}  // namespace tilescope
