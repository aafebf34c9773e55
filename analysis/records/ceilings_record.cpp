// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/ceilings_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "analysis/machine/sm_groups_json.hpp"
#include "analysis/records/json_fields.hpp"

namespace tilescope {

Machine measured_machine(Machine machine, const CeilingsRecord& record) {
  machine.name += "-measured";
  machine.title = record.measured.device + ", ceilings measured " + record.when;
  for (const MeasuredCeiling& ceiling : record.measured.ceilings) {
    const Fact<double> fact{
        ceiling.per_second,
        fmt::format("tilescope ceilings, {}: {}; fastest run, mean SM clock of all {:.0f} MHz", record.when,
                    ceiling.method, 1e-6 * ceiling.sm_clock_hz),
        "measured"};
    if (ceiling.name == "dram_copy") machine.dram_bytes_per_second = fact;
    if (ceiling.name == "sm_l2_read") machine.l2_bytes_per_second = fact;
    if (ceiling.unit == "flop/s") machine.peak_flops_per_second[ceiling.name] = fact;
    if (ceiling.name == "fp8e4m3") machine.peak_flops_per_second["fp8e5m2"] = fact;
  }
  const std::int64_t half_kept = half_kept_bytes(record.measured.l2, kReadByAll);
  if (half_kept > 0) {
    const std::string source = fmt::format("tilescope ceilings, {}: ", record.when);
    machine.l2_bytes = {record.measured.l2_bytes, source + "as the driver has it", "measured"};
    machine.l2_effective_fraction = {
        static_cast<double>(half_kept) / static_cast<double>(record.measured.l2_bytes),
        source + "the footprint of which half is kept when all SMs read it again and again", "measured"};
  }
  return machine;
}

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
  if (!record.measured.l2_parts.groups.empty()) {
    json["l2_parts"] = {{"groups", record.measured.l2_parts.groups}};
  }
  if (!record.measured.background.empty()) {
    json["background"] = Json::array();
    for (const BackgroundReads& reads : record.measured.background) {
      json["background"].push_back(
          {{"load", reads.load}, {"seconds", reads.seconds}, {"dram_read_bytes", reads.dram_read_bytes}});
    }
  }
  json["left_out"] = record.measured.left_out;
  return json.dump(1) + "\n";
}

namespace {

// Older records lack both.
void read_parts(const JsonField& field, Ceilings& measured) {
  constexpr std::int64_t kMostSms = 1 << 16, kMostParts = 64;
  if (!field.has("l2_parts")) return;
  measured.l2_parts.groups = parse_sm_groups(field.at("l2_parts").at("groups"), kMostSms, kMostParts);
}

void read_background(const JsonField& field, Ceilings& measured) {
  if (!field.has("background")) return;
  for (const JsonField& reads : field.at("background").items()) {
    measured.background.push_back({reads.has("load") ? reads.at("load").text() : kAsleep,
                                   reads.at("seconds").positive(), reads.at("dram_read_bytes").count()});
  }
}

}  // namespace

CeilingsRecord parse_ceilings_record(const std::string& source, std::string_view text) {
  const Json json = parse_json(source, text);
  const JsonField field(source, json);
  if (field.at("schema").text() != kCeilingsSchema) {
    field.at("schema").refuse("must be " + std::string(kCeilingsSchema));
  }
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
    read_parts(field, measured);
    read_background(field, measured);
    return record;
  } catch (const Json::exception& error) {
    throw BadInput(source + " is no record of ceilings: " + error.what());
  }
}

}  // namespace tilescope
