// SPDX-License-Identifier: Apache-2.0
// The record of `tilescope ceilings`: written, read again, and read where it is short or damaged.
#include "analysis/records/ceilings_record.hpp"

#include <doctest/doctest.h>

#include "analysis/records/files/text_file.hpp"
#include "common/errors.hpp"
#include "profiler/records/json_fields.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

CeilingsRecord full_ceilings() {
  CeilingsRecord record{{"tilescope", "ceilings"}, "2026-01-01T00:00:00Z", {}};
  record.measured.device = "Toy";
  record.measured.architecture = "sm_90";
  record.measured.driver = "13.0";
  record.measured.ceilings = {{"dram_copy", "byte/s", 4e12, 3.9e12, 0.01, 1.5e9, "copies"}};
  record.measured.l2_bytes = 64 << 20;
  record.measured.l2 = {{kReadByPartition, 1 << 20, 0.75}, {kReadRandom, 1 << 20, 0.5}};
  record.measured.l2_partitions = {{{8, 0}, {50, 0}, {18, 1}}};
  record.measured.links = {{kSmStores, true, 132, 1 << 20, 3.6e11, 3.5e11}};
  record.measured.noise_floor = {{kAsleep, 1e-4, 4096}, {"busy", 1.0, 1'000'000}};
  return record;
}

Json written() { return parse_json("written", to_json_text(full_ceilings())); }

std::string ceilings_complaint(const Json& json) {
  try {
    parse_ceilings_record("gpu.json", json.dump());
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("what was measured is read as it was written") {
  const CeilingsRecord record = full_ceilings();
  const CeilingsRecord again = parse_ceilings_record("again", to_json_text(record));
  CHECK(again.measured.l2_partitions == record.measured.l2_partitions);
  CHECK(again.measured.noise_floor == record.measured.noise_floor);
  CHECK(again.measured.links == record.measured.links);
  CHECK(again.measured.l2.size() == 2);
  CHECK(to_json_text(again) == to_json_text(record));
}

TEST_CASE("a record without partitions is read, and written without them") {
  const std::string path = TILESCOPE_SOURCE_DIR "/reports/data/ceilings-h200.json.gz";
  const std::string text = read_text_file(path);
  const CeilingsRecord record = parse_ceilings_record(path, text);
  CHECK(half_kept_bytes(record.measured.l2, kReadByAll) > 0);
  CHECK(half_kept_bytes(record.measured.l2, kReadByPartition) > 0);
  CHECK(half_kept_bytes(record.measured.l2, kReadRandom) > 0);
  CHECK(sms_of_partitions(record.measured.l2_partitions) == std::vector<int>{66, 66});
  CHECK_FALSE(record.measured.noise_floor.empty());
  Json json = written();
  json.erase("l2_partitions");
  json.erase("noise_floor");
  const CeilingsRecord shorter = parse_ceilings_record("shorter", json.dump());
  CHECK(shorter.measured.l2_partitions.groups.empty());
  CHECK(shorter.measured.noise_floor.empty());
  CHECK(to_json_text(shorter) == json.dump(1) + "\n");
}

TEST_CASE("damaged partitions and reads are refused by field") {
  const auto expect = [](const Json& json, const std::string& field) {
    const std::string message = ceilings_complaint(json);
    CAPTURE(message);
    CHECK(message.find("gpu.json") == 0);
    CHECK(message.find(field) != std::string::npos);
  };
  CHECK(ceilings_complaint(written()).empty());
  Json json = written();
  json["l2_partitions"] = 3;
  expect(json, "l2_partitions");
  json = written();
  json["l2_partitions"].erase("groups");
  expect(json, "groups");
  for (const auto& [key, value] :
       {std::pair{"sms", 0}, {"sms", 1 << 20}, {"partition", -1}, {"partition", 64}}) {
    json = written();
    json["l2_partitions"]["groups"][1][key] = value;
    expect(json, key);
  }
  json = written();
  json["noise_floor"][0]["seconds"] = 0;
  expect(json, "seconds");
  json = written();
  json["noise_floor"][0]["load"] = 1;
  expect(json, "load");
  json = written();
  json["noise_floor"][1]["dram_read_bytes"] = -1;
  expect(json, "dram_read_bytes");
  json = written();
  json["noise_floor"][1].erase("dram_read_bytes");
  expect(json, "dram_read_bytes");
}

}  // namespace
}  // namespace tilescope
