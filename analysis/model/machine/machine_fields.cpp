// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/machine/machine_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "analysis/records/record_kinds.hpp"
#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

enum class Needed { yes, no };

/// A number with evidence. Least and most are no specification: they tell bytes from MiB and Hz from MHz.
struct MachineField {
  const char* name;
  Needed needed;
  double least, most;
  const char* unit;
};

constexpr double kMost = 1e300;
constexpr MachineField kFields[] = {
    {"sm_count", Needed::yes, 1, 4096, "SMs"},
    {"shared_bytes_per_sm", Needed::yes, 0x1p13, 0x1p26, "bytes"},
    {"shared_bytes_per_cta", Needed::yes, 0x1p13, 0x1p26, "bytes"},
    {"on_chip_bytes_per_sm", Needed::yes, 0x1p15, 0x1p28, "bytes"},
    {"ctas_per_sm", Needed::yes, 1, 1024, "CTAs"},
    {"l2_bytes", Needed::yes, 0x1p17, 0x1p36, "bytes"},
    {"l2_effective_bytes", Needed::yes, 0, kMost, "bytes"},
    {"dram_bytes", Needed::no, 1e9, 1e13, "bytes"},
    {"dram_bytes_per_second", Needed::yes, 1e9, 1e15, "bytes a second"},
    {"sm_clock_hz", Needed::yes, 1e8, 1e10, "Hz"},
    {"l2_bytes_per_second", Needed::no, 1e10, 1e16, "bytes a second"},
    {"link_bytes_per_second", Needed::no, 1e8, 1e14, "bytes a second, in one direction"},
    {"link_latency_seconds", Needed::no, 1e-9, 1, "seconds a transfer"},
    {"launch_seconds", Needed::no, 1e-9, 1, "seconds a launch"},
    {"exponentials_per_clock_per_sm", Needed::no, 1, 1024, "a clock"},
    {"clock_cv", Needed::no, 0, 1, "of the mean"},
    {"l2_ways", Needed::no, 0, kMost, "lines of a set"},
    {"l2_dirty_ways", Needed::no, 0, kMost, "lines of a set"},
    {"sm_groups", Needed::no, 0, kMost, ""},
    {"cta_progress", Needed::no, 0, kMost, ""},
};
constexpr const char* kTexts[] = {"name", "title", "chip"};
constexpr const char* kPeaks = "peak_flops_per_second";
constexpr double kLeastPeak = 1e9, kMostPeak = 1e18;

using Names = std::vector<std::string>;

void require_known(const std::string& source, const std::string& where, const Json& object,
                   const Names& names) {
  if (!object.is_object()) return;  // which whoever reads it refuses
  for (const auto& [key, value] : object.items()) {
    if (std::find(names.begin(), names.end(), key) != names.end()) continue;
    throw unknown_name(source + ": " + where + "field", key, names);
  }
}

/// Nothing, null, or a fact without a value: as the template has it.
bool missing(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return true;
  return found->is_object() && found->contains("value") && found->at("value").is_null();
}

void require_credible(const std::string& source, const std::string& name, const Json& fact, double least,
                      double most, const char* unit) {
  if (!fact.is_object() || !fact.contains("value") || !fact.at("value").is_number()) return;
  const double value = fact.at("value").get<double>();
  if (value >= least && value <= most) return;
  if (value < 1) return;  // no number of anything, which whoever reads it refuses
  throw BadInput(source + ": " + name + ".value", fmt::format("{:g}", value),
                 fmt::format("must be in {}: {:g} ... {:g} is credible", unit, least, most));
}

const Names& fact_fields() {
  static const Names fields = {"value", "kind", "source"};
  return fields;
}

/// Fields of the entries of the two lists.
void require_known_in_lists(const std::string& source, const Json& machine) {
  const Names progress = {"kernel",     "pass",    "head_dim", "dtype",   "younger_rate",
                          "alone_rate", "step_cv", "tpc_cv",   "clock_cv"};
  const Names group = {"sms", "partition"};
  for (const auto& [list, names] : {std::pair("cta_progress", progress), {"sm_groups", group}}) {
    if (!machine.contains(list) || !machine[list].is_object() || !machine[list].contains("value")) continue;
    for (const Json& entry : machine[list]["value"])
      require_known(source, std::string(list) + " ", entry, names);
  }
}

}  // namespace

void require_machine_fields(const std::string& source, const Json& machine) {
  if (!machine.is_object()) return;
  refuse_records(source, machine);
  Names known(std::begin(kTexts), std::end(kTexts)), lacking;
  known.emplace_back(kPeaks);
  for (const char* text : kTexts) {
    if (missing(machine, text)) lacking.emplace_back(text);
  }
  for (const MachineField& field : kFields) {
    known.emplace_back(field.name);
    if (field.needed == Needed::yes && missing(machine, field.name)) lacking.emplace_back(field.name);
  }
  if (missing(machine, kPeaks)) lacking.emplace_back(kPeaks);
  for (const auto& [key, value] : machine.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end())
      throw unknown_name(source + ": field", key, known);
  }
  if (!lacking.empty()) {
    throw BadInput(fmt::format("{}: {} {} missing (tilescope list machines --template prints a whole file)",
                               source, fmt::join(lacking, ", "), lacking.size() == 1 ? "is" : "are"));
  }
  for (const MachineField& field : kFields) {
    if (!machine.contains(field.name)) continue;
    require_known(source, std::string(field.name) + " ", machine[field.name], fact_fields());
    require_credible(source, field.name, machine[field.name], field.least, field.most, field.unit);
  }
  if (machine[kPeaks].is_object()) {
    for (const auto& [type, fact] : machine[kPeaks].items()) {
      const std::string name = fmt::format("{}.{}", kPeaks, type);
      require_known(source, name + " ", fact, fact_fields());
      require_credible(source, name, fact, kLeastPeak, kMostPeak, "FLOP a second");
    }
  }
  require_known_in_lists(source, machine);
}

std::string machine_template() {
  Json machine;
  for (const char* text : kTexts) machine[text] = nullptr;
  const auto fact = [](const std::string& unit) {
    return Json{{"value", nullptr},
                {"kind", "datasheet, measured, derived, assumed or unverified"},
                {"source", "where the number came from; in " + unit}};
  };
  for (const MachineField& field : kFields) {
    if (*field.unit != 0 && (field.needed == Needed::yes || field.least > 0)) {
      machine[field.name] =
          fact(field.unit + std::string(field.needed == Needed::no ? "; may be left out" : ""));
    }
  }
  for (const char* type : {"fp32", "fp16", "bf16"}) machine[kPeaks][type] = fact("FLOP a second");
  return machine.dump(2) + "\n";
}

}  // namespace tilescope
