// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/ceilings_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "common/errors.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

std::string to_json_text(const CeilingsRecord& record) {
  Json json{{"schema", kCeilingsSchema},
            {"argv", record.argv},
            {"when", record.when},
            {"machine",
             {{"name", record.measured.device},
              {"architecture", record.measured.architecture},
              {"driver", record.measured.driver}}}};
  json["ceilings"] = Json::array();
  for (const MeasuredCeiling& ceiling : record.measured.ceilings) {
    json["ceilings"].push_back({{"name", ceiling.name},
                                {"unit", ceiling.unit},
                                {"per_second", ceiling.per_second},
                                {"median_per_second", ceiling.median_per_second},
                                {"noise", ceiling.noise},
                                {"sm_clock_hz", ceiling.sm_clock_hz},
                                {"method", ceiling.method}});
  }
  json["l2_bytes"] = record.measured.l2_bytes;
  json["l2"] = Json::array();
  for (const L2Residency& point : record.measured.l2) {
    json["l2"].push_back(
        {{"access", point.access}, {"footprint_bytes", point.footprint_bytes}, {"kept", point.kept}});
  }
  if (!record.measured.l2_partitions.groups.empty()) {
    json["l2_partitions"] = {{"groups", record.measured.l2_partitions.groups}};
  }
  if (!record.measured.noise_floor.empty()) {
    json["noise_floor"] = Json::array();
    for (const NoiseFloor& reads : record.measured.noise_floor) {
      json["noise_floor"].push_back(
          {{"load", reads.load}, {"seconds", reads.seconds}, {"dram_read_bytes", reads.dram_read_bytes}});
    }
  }
  if (!record.measured.links.empty()) {
    json["links"] = Json::array();
    for (const LinkCeiling& link : record.measured.links) {
      json["links"].push_back({{"engine", link.engine},
                               {"both_ways", link.both_ways},
                               {"ctas", link.ctas},
                               {"bytes", link.bytes},
                               {"per_second", link.per_second},
                               {"median_per_second", link.median_per_second}});
    }
  }
  json["left_out"] = record.measured.left_out;
  return json.dump(1) + "\n";
}

namespace {

// Of each, what was not measured is absent.
void read_links(const JsonField& field, Ceilings& measured) {
  if (!field.has("links")) return;
  for (const JsonField& link : field.at("links").items()) {
    measured.links.push_back({link.at("engine").text(), link.at("both_ways").boolean(),
                              static_cast<int>(link.at("ctas").count()), link.at("bytes").count(),
                              link.at("per_second").positive(), link.at("median_per_second").positive()});
  }
}

void read_partitions(const JsonField& field, Ceilings& measured) {
  constexpr std::int64_t kMostSms = 1 << 16, kMostPartitions = 64;
  if (!field.has("l2_partitions")) return;
  measured.l2_partitions.groups =
      parse_sm_groups(field.at("l2_partitions").at("groups"), kMostSms, kMostPartitions);
}

void read_noise_floor(const JsonField& field, Ceilings& measured) {
  if (!field.has("noise_floor")) return;
  for (const JsonField& reads : field.at("noise_floor").items()) {
    measured.noise_floor.push_back({reads.has("load") ? reads.at("load").text() : kAsleep,
                                    reads.at("seconds").positive(), reads.at("dram_read_bytes").count()});
  }
}

}  // namespace

CeilingsRecord parse_ceilings_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  require_kind(source, json, {kCeilingsSchema});
  const JsonField field(source, json);
  try {
    CeilingsRecord record;
    record.argv = json.at("argv").get<std::vector<std::string>>();
    record.when = json.at("when").get<std::string>();
    Ceilings& measured = record.measured;
    const Json& machine = json.at("machine");
    measured.device = machine.at("name").get<std::string>();
    measured.architecture = machine.at("architecture").get<std::string>();
    measured.driver = machine.at("driver").get<std::string>();
    for (const Json& row : json.at("ceilings")) {
      measured.ceilings.push_back({row.at("name").get<std::string>(), row.at("unit").get<std::string>(),
                                   row.at("per_second").get<double>(),
                                   row.at("median_per_second").get<double>(), row.at("noise").get<double>(),
                                   row.at("sm_clock_hz").get<double>(), row.at("method").get<std::string>()});
    }
    measured.l2_bytes = json.value("l2_bytes", std::int64_t{0});  // older records lack both
    for (const Json& point : json.value("l2", Json::array())) {
      measured.l2.push_back({point.at("access").get<std::string>(),
                             point.at("footprint_bytes").get<std::int64_t>(),
                             point.at("kept").get<double>()});
    }
    read_partitions(field, measured);
    read_noise_floor(field, measured);
    read_links(field, measured);
    return record;
  } catch (const Json::exception& error) {
    throw BadInput(source + " is no record of ceilings: " + error.what());
  }
}

}  // namespace tilescope
