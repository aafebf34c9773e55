// SPDX-License-Identifier: Apache-2.0
// Records survive the round trip, and damaged ones are refused by name, never by a crash.
#include "analysis/records/run_record.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "profiler/records/json_fields.hpp"

namespace tilescope {
namespace {

/// Every part present, with the awkward values: the largest counts, an unsigned seed, infinities.
RunRecord full_record() {
  RunRecord record = start_record({"tilescope", "simulate", "--json", "-"});
  record.git = {"0123abcd", true};
  record.machine.chip = "GH100";
  record.machine.driver = "570.1";
  record.cost = RecordCost{1.25, 13'000'000};
  RunEntry run;
  run.problem = {.batch = 2,
                 .heads = 4,
                 .heads_kv = 2,
                 .seqlen_q = 100,
                 .seqlen_k = 130,
                 .head_dim = 64,
                 .dtype = ElementType::bf16,
                 .causal = true,
                 .window_left = 17,
                 .softmax_scale = 0.3,
                 .dropout = 0.1,
                 .seed = std::numeric_limits<std::uint64_t>::max(),
                 .key_lengths = {3, 0},
                 .mask = {MaskKind::sink, {4}},
                 .score_mods = {.softcap = 50.5, .alibi = true, .learned_sink = true},
                 .head_dim_v = 48,
                 .page_size = 32};
  run.kernel = "gpu:flash2-mma";
  PassRecord pass;
  pass.name = "forward";
  pass.tile = {128, 64};
  pass.flops = (std::int64_t{1} << 59) + 1;  // not a double
  pass.executed_flops = pass.flops + 2;
  pass.closed_form = {1, 2, 3, 4};
  pass.simulated = {"h200", 1000, 132, 5, 6, 7, 8, 0.25, {{10, 7, 8}, {20, 3, 2}}};
  pass.measured = MeasuredBytes{9, std::nullopt, 10, 0};
  pass.time = TimeRecord{1.5e-3, 1.25e-3, 0.01, {1.5e-3, 1.25e-3}};
  pass.counters = {{"dram__bytes_read.sum", kMostCount}, {"ratio.pct", 12.5}};
  pass.launch = LaunchRecord{{10, 2, 1}, {128, 1, 1}, 255, 65536};
  run.passes = {pass, pass};
  run.passes[1].direction = Direction::backward;
  run.passes[1].measured.reset();
  run.passes[1].counters.clear();
  run.error = {{"o", {1e-3, 1e-4, 2, 0, 2e-3}},
               {"lse", {std::numeric_limits<double>::infinity(), 1, 1e9, 3, 1e-4}}};
  record.runs = {run, run};
  record.runs[1].problem.dtype = ElementType::fp8e4m3;
  record.runs[1].problem.descales = {{.value = 0.1}, {Descale::From::random}, {}, {128, 96}};
  record.runs[1].order = TileOrder::head_swizzled;
  record.runs[1].scan = Scan::sawtooth;
  record.runs[1].inputs = InputKind::outlier;
  record.runs[1].l2 = "warm";
  record.runs[1].verified = 16;
  record.runs[1].pages = PagePlacement::random;
  record.runs[1].passes.front().simulated->dram_read_range = {6, 9};
  record.runs[1].passes.front().measured->dram_read_range = {8, 11};
  record.runs[1].passes.front().measured->instruction_fetch_bytes = 32;
  record.runs[1].passes.back().tile = kUnknownTile;
  record.machine.libraries = "PyTorch 2";
  record.runs[1].passes.front().time->throttled = 3;
  record.runs[1].passes.front().time->sm_clock_hz = 1.98e9;
  record.runs[1].cases = 7;
  record.runs[1].failed = 1;
  record.runs[1].device_bytes = {{"forward", 1 << 21}, {"backward", 1 << 22}};
  record.runs[1].mirror_error = {{"dq", {1e-3, 1e-4, 2, 0, 2e-3, 3e-4, 0.75}}};
  record.runs[1].repeats = {{"dq", {100, 3, 1e-5, 2e-3, true}}, {"o", {100, 0, 0.0, 1e-3, false}}};
  return record;
}

/// The message that parsing gives, or "" if it accepts.
std::string complaint(const std::string& text) {
  try {
    parse_run_record("file.json", text);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

Json valid_json() { return Json::parse(to_json_text(full_record())); }

TEST_CASE("a record survives the round trip, byte for byte") {
  const RunRecord record = full_record();
  const std::string text = to_json_text(record);
  const RunRecord back = parse_run_record("file.json", text);
  CHECK(back == record);
  CHECK(to_json_text(back) == text);
}

TEST_CASE("placements have names, and others are refused") {
  for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
    CHECK(parse_page_placement(to_string(pages)) == pages);
  }
  CHECK_THROWS_AS(parse_page_placement("strewn"), BadInput);
}

TEST_CASE("NaN survives too") {
  RunRecord record = full_record();
  record.runs[0].error["o"].rmse = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(parse_run_record("f", to_json_text(record)).runs[0].error["o"].rmse));
}

TEST_CASE("absent parts are left out, never zero") {
  const Json pass = valid_json()["runs"][0]["passes"][1];
  CHECK_FALSE(pass.contains("measured"));
  CHECK_FALSE(pass.contains("counters"));
  const Json measured = valid_json()["runs"][0]["passes"][0]["measured"];
  CHECK_FALSE(measured.contains("sm_l2_write_bytes"));
  CHECK(measured["dram_write_bytes"] == 0);
  CHECK_FALSE(measured.contains("dram_read_range"));
  CHECK_FALSE(measured.contains("instruction_fetch_bytes"));
  CHECK_FALSE(pass["simulated"].contains("dram_read_range"));
  CHECK_FALSE(valid_json()["runs"][0].contains("pages"));
  CHECK(valid_json()["runs"][1]["pages"] == "random");
}

TEST_CASE("rows judged before measuring are a number or false, or absent") {
  RunRecord record = full_record();
  CHECK_FALSE(valid_json()["runs"][0].contains("verified"));
  CHECK(valid_json()["runs"][1]["verified"] == 16);
  record.runs[0].verified = 0;
  const Json json = Json::parse(to_json_text(record));
  CHECK(json["runs"][0]["verified"] == false);
  CHECK(parse_run_record("f", json.dump()) == record);
}

TEST_CASE("argv that is not UTF-8 does not make a record impossible") {
  RunRecord record = full_record();
  record.argv = {"\xff\xfe"};
  CHECK(complaint(to_json_text(record)).empty());
}

TEST_CASE("another schema, missing fields, wrong types and negative counts are named") {
  const auto expect = [](const Json& json, const std::vector<std::string>& parts) {
    const std::string message = complaint(json.dump());
    CAPTURE(message);
    CHECK(message.find("file.json") == 0);
    for (const std::string& part : parts) {
      CAPTURE(part);
      CHECK(message.find(part) != std::string::npos);
    }
  };
  Json json = valid_json();
  json["schema"] = "tilescope.run/2";
  expect(json, {"schema", "tilescope.run/2", "tilescope.run/1"});
  json = valid_json();
  json["runs"][1]["passes"][0]["closed_form"]["sm_l2_read_bytes"] = -5;
  expect(json, {"runs[1].passes[0].closed_form.sm_l2_read_bytes", "-5", "in 0 ..."});
  json = valid_json();
  json["runs"][0]["passes"][0]["flops"] = 1.5;
  expect(json, {"runs[0].passes[0].flops", "1.5", "integer"});
  json = valid_json();
  json["runs"][0]["passes"][0]["flops"] = std::numeric_limits<std::uint64_t>::max();
  expect(json, {"runs[0].passes[0].flops", "18446744073709551615"});
  for (const Json& wrong : {Json(0), Json(kMostCount + 1)}) {
    json = valid_json();
    json["runs"][0]["passes"][0]["simulated"]["l2_curve"][0]["l2_bytes"] = wrong;
    expect(json, {"runs[0].passes[0].simulated.l2_curve[0].l2_bytes", "in 1 ... 9007199254740991"});
  }
  json = valid_json();
  json["runs"][0]["passes"][0]["simulated"]["l2_curve"][1]["l2_bytes"] = 10;
  expect(json, {"runs[0].passes[0].simulated.l2_curve", "must have sizes that ascend"});
  for (const Json& wrong : {Json(7.5), Json("nan")}) {
    json = valid_json();
    json["runs"][0]["passes"][0]["simulated"]["hit_rate"] = wrong;
    expect(json, {"runs[0].passes[0].simulated.hit_rate", "at most 1"});
  }
  json = valid_json();
  json["runs"][0]["passes"][0]["time"]["noise"] = "inf";
  expect(json, {"runs[0].passes[0].time.noise", "at least 0"});
  json = valid_json();
  json["runs"][0]["error"]["o"]["bound"] = -1e-3;
  expect(json, {"runs[0].error.o.bound", "-0.001", "must not be negative"});
  json = valid_json();
  json["runs"][1]["problem"]["descale_block"] = {std::int64_t{1} << 32 | 64, 64};
  expect(json, {"runs[1].problem.descale_block[0]", "4294967360"});
  json = valid_json();
  for (Json& pass : json["runs"][0]["passes"]) pass["flops"] = std::int64_t{3} << 60;
  expect(json, {"runs[0].passes", "FLOPs together"});
  json = valid_json();
  json["runs"][0]["passes"] = Json(257, json["runs"][0]["passes"][0]);
  expect(json, {"runs[0].passes", "must not be that many"});
  json = valid_json();
  json["runs"][0].erase("kernel");
  expect(json, {"runs[0].kernel", "missing"});
  json = valid_json();
  json["runs"][0]["problem"]["heads_kv"] = 3;
  expect(json, {"runs[0].problem", "heads_kv = 3", "divide"});
  json = valid_json();
  json["runs"][0]["problem"]["dtype"] = "fp12";
  expect(json, {"dtype = fp12"});
  json = valid_json();
  json["runs"][0]["problem"]["window"] = {1};
  expect(json, {"window", "[left, right]"});
  json = valid_json();
  json["runs"][0]["passes"][0]["tile"]["block_m"] = 0;
  expect(json, {"tile.block_m", "0"});
  json = valid_json();
  json["runs"][1]["passes"][0]["measured"]["dram_read_range"] = {11, 8};
  expect(json, {"runs[1].passes[0].measured.dram_read_range", "[least, largest]"});
  json = valid_json();
  json["runs"][1]["passes"][0]["measured"]["dram_read_range"] = {11};
  expect(json, {"runs[1].passes[0].measured.dram_read_range", "[least, largest]"});
  json = valid_json();
  json["runs"][1]["passes"][0]["simulated"]["dram_read_range"] = {9, 6};
  expect(json, {"runs[1].passes[0].simulated.dram_read_range", "[least, largest]"});
  json = valid_json();
  json["runs"][1]["pages"] = "strewn";
  expect(json, {"runs[1].pages", "strewn", "contiguous or random"});
  for (const Json& wrong : {Json(true), Json(0)}) {
    json = valid_json();
    json["runs"][1]["verified"] = wrong;
    expect(json, {"runs[1].verified"});
  }
  json = valid_json();
  json["runs"][1]["scan"] = "zigzag";
  expect(json, {"runs[1].scan", "zigzag", "sawtooth"});
  json = valid_json();
  json["runs"] = "none";
  expect(json, {"runs", "\"none\"", "array"});
  expect(Json::array({1, 2}), {"an array", "must be an object"});
  expect(nullptr, {"null"});
}

TEST_CASE("every prefix of a record is refused") {
  std::string text = to_json_text(full_record());
  text.pop_back();  // the final newline is no part of the JSON
  for (std::size_t length = 0; length < text.size(); ++length) {
    REQUIRE_FALSE(complaint(text.substr(0, length)).empty());
  }
}

TEST_CASE("a mutated record is read or refused, never more") {
  const std::string text = to_json_text(full_record());
  constexpr int kMutants = 4000;
  const std::string alphabet = "{}[]\",:.-0159eEnulltrue \\\xff";
  int refused = 0;
  for (unsigned seed = 0; seed < kMutants; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string mutant = text;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % mutant.size();
      switch (random() % 3) {
        case 0:
          mutant[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          mutant.erase(at, 1 + random() % 40);
          break;
        default:
          mutant.insert(at, 1, alphabet[random() % alphabet.size()]);
      }
    }
    refused += !complaint(mutant).empty();
  }
  CHECK(refused > kMutants / 2);
}

TEST_CASE("a file is written whole or not at all") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("tilescope_record_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const std::string path = folder / "record.json";
  const RunRecord record = full_record();
  write_run_record(record, path);
  CHECK(read_run_record(path) == record);
  write_run_record(record, path);  // replaces
  CHECK(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1);
  CHECK_THROWS_AS(write_run_record(record, folder), BadInput);
  CHECK_THROWS_AS(write_run_record(record, folder / "absent" / "record.json"), BadInput);
  CHECK_THROWS_AS(read_run_record(folder / "absent.json"), BadInput);
  CHECK_THROWS_AS(read_run_record(folder), BadInput);
  fs::create_symlink(path, folder / "link.json");
  write_run_record(RunRecord{}, folder / "link.json");
  CHECK(fs::is_symlink(folder / "link.json"));
  CHECK(read_run_record(path).runs.empty());
  fs::remove_all(folder);
}

TEST_CASE("a new record knows when, where and from what it was made") {
  const RunRecord record = start_record({"a", "b"});
  CHECK(record.argv == std::vector<std::string>{"a", "b"});
  CHECK_FALSE(record.git.sha.empty());
  CHECK(record.machine.threads.value_or(0) >= 1);
  CHECK(record.when.size() == std::string("2025-01-31T23:59:59Z").size());
  CHECK(record.when.back() == 'Z');
}

}  // namespace
}  // namespace tilescope
