// SPDX-License-Identifier: Apache-2.0
// The form of a record that is kept: shorter, and no poorer in what its readers know.
#include "analysis/records/compact_record.hpp"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"

namespace tilescope {
namespace {

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

RunRecord record_of_runs(int runs) {
  RunRecord record = start_record({"tilescope", "profile"});
  for (int i = 0; i < runs; ++i) {
    RunEntry& run = record.runs.emplace_back();
    run.problem = {.batch = 1, .heads = 4, .heads_kv = 4, .seqlen_q = 128 << i, .seqlen_k = 128 << i};
    run.problem.softmax_scale = 0.1234567890123;  // an input: to the last digit
    run.kernel = "gpu:flash2-mma";
    PassRecord& pass = run.passes.emplace_back();
    pass.name = "forward";
    pass.tile = {128, 64};
    pass.closed_form = {1000 + i, 2, 3, 4};
    pass.simulated = {"h200", 1000, 132, 5, 6, 7, 8, 0.123456789, {{10, 7, 8}, {20, 3, 2}}};
    pass.measured = MeasuredBytes{9, 10, 11, 12};
    pass.time = TimeRecord{1.234567890123e-3, 1.2e-3, 0.01, {1.234567890123e-3, 1.2e-3, 1.5e-3}};
    pass.counters = {{"dram__bytes_read.sum", std::int64_t{(std::int64_t{1} << 60) + 1}},
                     {"smsp__inst_executed.sum", std::int64_t{7}}};
    pass.launch = LaunchRecord{{4, 1, 1}, {128, 1, 1}, 168, 2048};
    run.error = {{"o", {1.000001e-3, 1e-4, 2, 0, 2e-3}}};
  }
  return record;
}

TEST_CASE(
    "of a compact record nothing is gone but samples, digits of times, shares and errors, and what "
    "is told elsewhere") {
  const RunRecord record = record_of_runs(3);
  const std::string text = to_json_text(record), compact = compact_record("r.json", text);
  CHECK(compact.size() < text.size() / 2);
  RunRecord expected = without_samples(record);
  for (RunEntry& run : expected.runs) {
    run.passes[0].time->median_s = 1.23456789e-3;
    run.passes[0].simulated->hit_rate = 0.123457;
    run.passes[0].simulated->l2_curve.clear();  // it was measured with one L2
    run.passes[0].counters.erase("smsp__inst_executed.sum");
    run.passes[0].launch = LaunchRecord{{4, 1, 1}, {128, 1, 1}, {}, {}};
    run.error["o"].max_abs = 1.0001e-3;  // up, so that an error that has not grown is within it
    run.error["o"].max_ulp = 0;
  }
  CHECK(expected.runs[0].passes[0].time->samples == 3);
  CHECK(parse_run_record("r.json", compact) == expected);
}

TEST_CASE("the curve over sizes of L2 stays with a kernel as it is, not with an order that was tried") {
  RunRecord record = record_of_runs(2);
  for (RunEntry& run : record.runs) run.passes[0].measured = std::nullopt;
  record.runs[1].order = TileOrder::longest_first;
  const RunRecord kept = parse_run_record("r.json", compact_record("r.json", to_json_text(record)));
  CHECK(kept.runs[0].passes[0].simulated->l2_curve.size() == 2);
  CHECK(kept.runs[1].passes[0].simulated->l2_curve.empty());
  CHECK_FALSE(kept.runs[0].passes[0].launch);  // of a pass that was not measured
}

TEST_CASE(
    "counts that follow from problem and tile are left out of runs that were only judged, and of no others") {
  RunRecord record = record_of_runs(2);
  for (RunEntry& run : record.runs) {
    for (PassRecord& pass : run.passes) {
      pass.time = std::nullopt;
      pass.measured = std::nullopt;
      pass.simulated = std::nullopt;
      pass.closed_form = ClosedFormBytes{1, 2, 3, 4};
      pass.flops = pass.executed_flops = 5;
    }
  }
  record.runs[1].error.clear();
  const RunRecord kept = parse_run_record("r.json", compact_record("r.json", to_json_text(record)));
  CHECK(!kept.runs[0].passes[0].closed_form);
  CHECK(kept.runs[0].passes[0].flops == 0);
  CHECK(kept.runs[1].passes[0].closed_form == record.runs[1].passes[0].closed_form);
  CHECK(kept.runs[1].passes[0].flops == 5);
}

TEST_CASE(
    "of predictions stay the time to the nanosecond and each GPU's bytes, of kernels what their bytes are") {
  const std::string ranks =
      compact_record("r.json", R"({"schema": "tilescope.distributed/1", "runs": [{"passes": [
    {"name": "forward", "predicted": {"time_s": 1.2345678912345},
     "gpus": [{"link_sent_bytes": 5, "state_bytes": 6, "visible_pairs": 7, "link_s": 0.5}]}]}]})");
  CHECK(contains(ranks, "1.23456789"));
  CHECK_FALSE(contains(ranks, "1.234567891"));
  CHECK(contains(ranks, "state_bytes"));
  CHECK_FALSE(contains(ranks, "link_s\""));
  CHECK_FALSE(contains(ranks, "visible_pairs"));

  const std::string path = TILESCOPE_SOURCE_DIR "/reports/foreign/mha.json";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(compact_record(path, text.str()).size() == text.str().size());
  CHECK(contains(text.str(), "warp_instructions"));
  CHECK_FALSE(contains(text.str(), "sm_clock"));
}

TEST_CASE("a compact record stays as it is, and is no place to write over what is no record") {
  const std::string compact = compact_record("r.json", to_json_text(record_of_runs(2)));
  CHECK(compact_record("r.json", compact) == compact);
  for (const char* text : {"{}", "3", "{\"schema\": \"other/1\"}", "{\"schema\": \"tilescope.run/1\"}"}) {
    CHECK_THROWS_WITH_AS(compact_record("r.json", text), doctest::Contains("r.json"), BadInput);
  }
}

TEST_CASE("a compact record names programs and files, not where they lay") {
  RunRecord record = record_of_runs(1);
  record.argv = {"/tmp/build/bin/tilescope", "profile", "--json", "/root/out/run.json", "--window", "-1,0"};
  const RunRecord kept = parse_run_record("r.json", compact_record("r.json", to_json_text(record)));
  CHECK(kept.argv ==
        std::vector<std::string>{"./tilescope", "profile", "--json", "run.json", "--window", "-1,0"});
}

TEST_CASE("damage to a table of a record is named with its file") {
  std::string compact = compact_record("r.json", to_json_text(record_of_runs(2)));
  const std::size_t row = compact.find("\n[", compact.find("\"rows\""));
  compact.insert(row + 2, "7,");
  CHECK_THROWS_WITH_AS(parse_run_record("r.json", compact),
                       doctest::Contains("r.json: a table must have rows of"), BadInput);
}

}  // namespace
}  // namespace tilescope
