// SPDX-License-Identifier: Apache-2.0
// The machine files that TileScope ships, and the refusal of damaged ones.
#include "analysis/model/machine/machine.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "analysis/records/ceilings_record.hpp"
#include "analysis/records/files/text_file.hpp"
#include "common/temporary_folder.hpp"
#include "gpu/registry/kernel_registry.hpp"
#include "profiler/records/json_fields.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

std::string machine_complaint(const std::string& name_or_path) {
  try {
    load_machine(name_or_path);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

Json shipped(const std::string& name) {
  return parse_json(
      name, read_text_file(std::string(TILESCOPE_SOURCE_DIR "/analysis/model/machine/") + name + ".json"));
}

std::string machine_complaint(const Json& json) {
  try {
    parse_machine("gpu.json", json.dump());
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("the shipped machines load under their own name") {
  const std::vector<std::string> names = machine_names();
  CHECK(std::is_sorted(names.begin(), names.end()));
  for (const char* of_examples : {"h200", "a100-40gb"})
    CHECK(std::count(names.begin(), names.end(), of_examples) == 1);
  for (const std::string& name : names) {
    CAPTURE(name);
    const Machine machine = load_machine(name);
    CHECK(machine.name == name);
    CHECK(parse_machine("again", to_json_text(machine)) == machine);
    CHECK(machine.shared_bytes_per_cta.value < machine.shared_bytes_per_sm.value);
    CHECK(machine.shared_bytes_per_sm.value < machine.on_chip_bytes_per_sm.value);
    CHECK(machine.l2_effective_bytes.value <= machine.l2_bytes.value);
    CHECK(machine.dram_bytes.value().value > machine.l2_bytes.value);
    CHECK(machine.compute_capability().value() >= 80);
    CHECK(machine.peak_flops(ElementType::fp16).value() > machine.peak_flops(ElementType::fp32).value());
  }
}

TEST_CASE("a machine file is held to its fields, to their units, and to a name of its own") {
  const auto refused = [](const Json& json, std::initializer_list<const char*> said) {
    const std::string message = machine_complaint(json);
    CAPTURE(message);
    for (const char* part : said) CHECK(message.find(part) != std::string::npos);
  };
  Json json = shipped("h200");
  json["l2_bytes_per_secnd"] = json["l2_bytes_per_second"];
  refused(json, {"l2_bytes_per_secnd", "did you mean l2_bytes_per_second"});
  json = shipped("h200");
  json["sm_count"]["comment"] = "all of them";
  refused(json, {"sm_count", "comment", "value, kind, source"});
  json = shipped("h200");
  json["cta_progress"]["mma.sync"]["value"]["yonger_rate"] = 1.0;
  refused(json, {"cta_progress", "did you mean younger_rate"});
  json = shipped("h200");
  json["l2_bytes"]["value"] = 60;  // MiB
  refused(json, {"l2_bytes.value = 60", "bytes"});
  json = shipped("h200");
  json["sm_clock_hz"]["value"] = 1830;  // MHz
  refused(json, {"sm_clock_hz.value", "Hz"});
  json = shipped("h200");
  json["peak_flops_per_second"]["fp16"]["value"] = 989.4;  // TFLOP/s
  refused(json, {"peak_flops_per_second.fp16.value", "FLOP a second"});
  json = shipped("h200");
  json.erase("sm_count");
  json.erase("chip");
  json["l2_bytes"]["value"] = nullptr;
  refused(json, {"sm_count, l2_bytes are missing", "--template"});

  const TemporaryFolder folder;
  const std::string path = (folder.path() / "mine.json").string();
  json = shipped("h200");
  std::ofstream(path) << json.dump();
  CHECK(load_machine(path) == load_machine("h200"));  // a copy is the same machine
  json["sm_count"]["value"] = 131;
  json.erase("sm_groups");
  json.erase("l2_ways");
  json.erase("l2_dirty_ways");
  std::ofstream(path) << json.dump();
  CHECK(machine_complaint(path).find("must be a name of its own") != std::string::npos);
}

TEST_CASE("a file may hold what it adds to a machine that TileScope ships") {
  const Machine h200 = load_machine("h200"), measured = load_machine("h200-measured");
  CHECK(shipped("h200-measured")["base"] == "h200");
  CHECK(measured.launch_seconds == h200.launch_seconds);
  CHECK(measured.cta_progress == h200.cta_progress);
  CHECK(measured.dram_bytes_per_second.kind == "measured");
  CHECK(measured.dram_bytes_per_second.value < h200.dram_bytes_per_second.value);
  CHECK(parse_machine("again", to_json_text(measured, h200)) == measured);
  Json json = {{"name", "mine"}, {"base", "h200"}};
  json["peak_flops_per_second"]["fp16"] = shipped("h200-measured")["peak_flops_per_second"]["fp16"];
  const Machine mine = parse_machine("mine.json", json.dump());
  CHECK(mine.peak_flops(ElementType::fp16) == measured.peak_flops(ElementType::fp16));
  CHECK(mine.peak_flops(ElementType::bf16) == h200.peak_flops(ElementType::bf16));
  json["base"] = "h20O";
  CHECK(machine_complaint(json).find("a100-40gb") != std::string::npos);
  json["base"] = "h200-measured";
  CHECK(machine_complaint(json).find("must be a machine that stands alone") != std::string::npos);
  json["base"] = 1;
  CHECK(machine_complaint(json).find("base = 1: must be a string") != std::string::npos);
}

TEST_CASE("the template of a machine file becomes one when its numbers are filled in") {
  Json json = parse_json("template", machine_template());
  CHECK(machine_complaint(json).find("name, sm_count, shared_bytes_per_sm, l2_bytes, ") != std::string::npos);
  const Json h200 = shipped("h200");
  for (const auto& [key, value] : h200.items()) {
    if (json.contains(key)) json[key] = value;
  }
  json["name"] = "mine";
  CHECK(machine_complaint(json) == "");
}

TEST_CASE("five numbers of a datasheet are enough: what is left empty has defaults that say so") {
  Json json = parse_json("template", machine_template());
  json["name"] = "b200";
  const auto fill = [](Json& fact, const Json& value) {
    fact["value"] = value;
    fact["kind"] = "datasheet";
    fact["source"] = "a data sheet";
  };
  fill(json["sm_count"], 148);
  fill(json["shared_bytes_per_sm"], "228KiB");
  fill(json["l2_bytes"], "126MiB");
  fill(json["dram_bytes_per_second"], "8TB/s");
  fill(json["peak_flops_per_second"]["fp16"], "2250TFLOP/s");
  const Machine machine = parse_machine("b200.json", json.dump());
  CHECK(machine.l2_bytes.value == 126 << 20);
  CHECK(machine.dram_bytes_per_second.value == 8e12);
  CHECK(machine.peak_flops(ElementType::fp16) == 2.25e15);
  CHECK_FALSE(machine.peak_flops(ElementType::fp32).has_value());
  CHECK(machine.shared_bytes_per_cta.value == 227 << 10);
  CHECK(machine.on_chip_bytes_per_sm.value == 512 << 10);
  for (const Fact<std::int64_t>& fact :
       {machine.shared_bytes_per_cta, machine.on_chip_bytes_per_sm, machine.ctas_per_sm,
        machine.l2_effective_bytes, machine.exponentials_per_clock_per_sm.value()}) {
    CHECK(fact.kind == kDefaultKind);
    CHECK(fact.source.starts_with("TileScope's default: "));
  }
  CHECK_FALSE(machine.l2_bytes_per_second.has_value());
  CHECK(parse_machine("again", to_json_text(machine)) == machine);
  fill(json["l2_bytes"], "126 of them");
  CHECK(machine_complaint(json).find("with its unit, as in") != std::string::npos);
}

TEST_CASE(
    "what is no number with its source is refused with the form of one, and the template's words are none") {
  const Json h200 = shipped("h200"), bare = {{"value", 128}};
  const auto refused = [&h200](const char* pointer, const Json& fact, const char* field, const char* why) {
    Json json = h200;
    json["name"] = "mine";
    json[Json::json_pointer(pointer)] = fact;
    const std::string message = machine_complaint(json);
    CAPTURE(message);
    CHECK(message.starts_with(std::string("gpu.json: ") + field));
    CHECK(message.find(why) != std::string::npos);
  };
  constexpr const char* kForm =
      R"(as in {"value": 128, "kind": "datasheet", "source": "NVIDIA's data sheet"})";
  refused("/sm_count", "many", "sm_count = \"many\"", "must be a number, or one with its kind and source");
  refused("/sm_count", Json::array({128}), "sm_count = an array", kForm);
  refused("/sm_count", bare, "sm_count.kind is missing", kForm);
  refused("/peak_flops_per_second/fp16", "fast", "peak_flops_per_second.fp16 = \"fast\"", kForm);
  refused("/sm_count", 0, "sm_count = 0", "must be an integer in 1 ... ");
  refused("/l2_bytes", 60, "l2_bytes = 60", "must be in bytes: ");
  refused("/l2_effective_bytes", "70MiB", "l2_effective_bytes = \"70MiB\"", "62914560, the whole L2");
  refused("/l2_ways", 1 << 20, "l2_ways = 1048576", "must be");
  refused("/launch_seconds", "soon", "launch_seconds = \"soon\"", kForm);
  Json fact = parse_json("template", machine_template())["sm_count"];
  fact["value"] = 132;
  fact["kind"] = "datasheet";
  refused("/sm_count", fact, "sm_count.source", "still the template's");
}

TEST_CASE("an L2 in two partitions may limit the dirty lines of its sets") {
  CHECK(load_machine("h200").split_l2()->dirty_ways == 8);
  Json json = shipped("h200");
  json.erase("l2_dirty_ways");
  CHECK_FALSE(parse_machine("gpu.json", json.dump()).split_l2()->dirty_ways);
}

TEST_CASE("an unknown name is refused with the known ones") {
  const std::string message = machine_complaint(std::string("h20O"));
  CHECK(message.find("h20O") != std::string::npos);
  CHECK(message.find("a100-40gb") != std::string::npos);
  const std::string b200 = machine_complaint(std::string("b200"));  // no slip of h200
  CHECK(b200.find("did you mean") == std::string::npos);
  CHECK(b200.find("list machines --template >b200.json") != std::string::npos);
  CHECK(machine_complaint(std::string("a100")).find("did you mean a100-40gb or a100-80gb?") !=
        std::string::npos);
  for (const auto& [meant, name] : {std::pair("h100", "h100-sxm"),
                                    {"H200", "h200"},
                                    {"A100 80GB", "a100-80gb"},
                                    {"rtx5070ti", "rtx-5070-ti"}}) {
    CHECK(load_machine(meant).name == name);
  }
  for (const char* const another : {"rtx", "rtx-5070", "h", "", "rtx4090"}) {
    CHECK(machine_complaint(std::string(another)).find("list machines --template") != std::string::npos);
  }
  CHECK(machine_complaint(std::string("/absent/gpu.json")).find("/absent/gpu.json") != std::string::npos);
}

TEST_CASE("no machine file knows a kernel") {
  for (const auto& file :
       std::filesystem::directory_iterator(TILESCOPE_SOURCE_DIR "/analysis/model/machine")) {
    if (file.path().extension() != ".json") continue;
    const std::string text = read_text_file(file.path());
    CAPTURE(file.path());
    for (const Kernel* kernel : all_kernels()) CHECK(text.find(kernel->name) == std::string::npos);
    CHECK(text.find("gpu:") == std::string::npos);
  }
}

TEST_CASE("a damaged machine file is refused by file and field") {
  const auto expect = [](const Json& json, const char* field, const char* reason) {
    const std::string message = machine_complaint(json);
    CAPTURE(message);
    CHECK(message.find("gpu.json: ") == 0);
    CHECK(message.find(field) != std::string::npos);
    CHECK(message.find(reason) != std::string::npos);
  };
  CHECK(machine_complaint(shipped("h200")).empty());
  Json json = shipped("h200");
  json.erase("l2_bytes");
  expect(json, "l2_bytes", "missing");
  json = shipped("h200");
  json["sm_count"]["value"] = 0;
  expect(json, "sm_count.value", "in 1 ...");
  json = shipped("h200");
  json["sm_count"]["value"] = 132.5;
  expect(json, "sm_count.value", "integer");
  json = shipped("h200");
  json["l2_effective_bytes"]["value"] = json["l2_bytes"]["value"].get<std::int64_t>() + 1;
  expect(json, "l2_effective_bytes.value", "62914560");
  json = shipped("h200");
  json["l2_bytes"]["value"] = 1 << 18;  // 64 sets of 16 lines in each half
  json["l2_effective_bytes"]["value"] = 1 << 18;
  expect(json, "l2_ways.value", "128 sets");
  json = shipped("h200");
  json["cta_progress"]["mma.sync"]["value"]["younger_rate"] = 0;
  expect(json, "cta_progress.mma.sync.value.younger_rate", "above 0");
  for (const double rate : {1e-300, 1e-4, 1e4}) {  // steps of which no clock holds the times
    json["cta_progress"]["mma.sync"]["value"]["younger_rate"] = rate;
    expect(json, "cta_progress.mma.sync.value.younger_rate", "0.001 ... 1000");
  }
  json = shipped("h200");
  json["cta_progress"]["mma.sync"]["value"]["step_cv"] = -0.01;
  expect(json, "cta_progress.mma.sync.value.step_cv", "above 0");
  json = shipped("h200");
  json["cta_progress"]["mma.sync"]["value"]["tpc_cv"] = 0;
  expect(json, "cta_progress.mma.sync.value.tpc_cv", "above 0");
  json = shipped("h200");
  json["l2_ways"]["value"] = 0;
  expect(json, "l2_ways.value", "1");
  json = shipped("h200");
  json.erase("l2_ways");
  expect(json, "l2_ways", "missing");
  json = shipped("h200");
  json["l2_dirty_ways"]["value"] = 17;
  expect(json, "l2_dirty_ways.value", "16");
  json = shipped("h200");
  json["sm_groups"]["value"][0]["partition"] = 2;
  expect(json, "sm_groups.value[0].partition", "1");
  json = shipped("h200");
  json["sm_groups"]["value"][0]["sms"] = 9;
  expect(json, "sm_groups.value", "132 SMs");
  json = shipped("h200");
  json["dram_bytes_per_second"].erase("source");
  expect(json, "dram_bytes_per_second.source", "missing");
  json = shipped("h200");
  json["dram_bytes_per_second"]["kind"] = "guess";
  expect(json, "dram_bytes_per_second.kind", "datasheet");
  json = shipped("h200");
  json["peak_flops_per_second"]["fp12"] = json["peak_flops_per_second"]["fp16"];
  expect(json, "peak_flops_per_second.fp12", "fp32");
  json = shipped("h200");
  json["cta_progress"]["tensor"] = json["cta_progress"]["mma.sync"];
  expect(json, "cta_progress.tensor", "wgmma");
  const std::string text = shipped("a100-40gb").dump();
  for (std::size_t length = 0; length < text.size(); ++length) {
    CHECK_THROWS_AS(parse_machine("gpu.json", text.substr(0, length)), BadInput);
  }
}

TEST_CASE("ceilings give a machine whose file has no partitions those that were measured") {
  const std::string path = TILESCOPE_SOURCE_DIR "/reports/data/ceilings-h200.json.gz";
  CeilingsRecord record = parse_ceilings_record(path, read_text_file(path));
  const Machine h200 = load_machine("h200");
  Machine h100 = load_machine("h100-sxm");
  REQUIRE(h100.split_l2());  // of another H100
  CHECK(measured_machine(h100, record).sm_groups->value == record.measured.l2_partitions.groups);
  h100.sm_groups.reset();
  h100.l2_ways.reset();
  h100.l2_dirty_ways.reset();
  h100.cta_progress.clear();
  record.measured.l2_bytes = h100.l2_bytes.value;
  const Machine machine = measured_machine(h100, record);
  REQUIRE(machine.split_l2());
  CHECK(machine.sm_groups->value == record.measured.l2_partitions.groups);
  CHECK(machine.split_l2()->partition_bytes == h100.l2_bytes.value / 2);
  CHECK(machine.split_l2()->dirty_ways == h200.l2_dirty_ways->value);
  REQUIRE(machine.cta_progress.size() == h200.cta_progress.size());
  for (const auto& [unit, rates] : machine.cta_progress) {
    CHECK(rates.value == h200.cta_progress.at(unit).value);
    CHECK(rates.kind == "assumed");
  }
  CHECK(machine.l2_ways->kind == "assumed");
  CHECK(parse_machine("written", to_json_text(machine)) == machine);
  CHECK(parse_machine("added", to_json_text(machine, h100)) == machine);
  // A chip of which nobody knows the ways stays as it is, as does what a file states.
  Machine other = h100;
  other.chip = "GA100";
  CHECK_FALSE(measured_machine(other, record).split_l2());
  CHECK(measured_machine(h200, record).sm_groups == h200.sm_groups);
  record.measured.l2_partitions = {};
  CHECK_FALSE(measured_machine(h100, record).split_l2());
}

}  // namespace
}  // namespace tilescope
