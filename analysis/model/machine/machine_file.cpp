// SPDX-License-Identifier: Apache-2.0
// Machine files: one list of fields for their reader, their writer and the template.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/record_parts.hpp"
#include "common/installed_files.hpp"
#include "common/nearest_names.hpp"
#include "profiler/records/field_list.hpp"

namespace tilescope {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;
using Entries = std::vector<std::pair<std::string, JsonField>>;

constexpr const char* kBase = "base";  // the machine to which a file adds
constexpr const char* kPeaks = "peak_flops_per_second";

/// Names the fields of a list.
class FieldNames {
 public:
  static constexpr bool kReads = false;
  struct Field {
    std::string name, unit;  // the unit of a codec that has one
    bool required;
  };

  template <typename Codec, typename T>
  void required(const char* key, const Codec& codec, const T&) {
    add(key, codec, true);
  }
  template <typename Codec, typename T>
  void optional(const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }
  template <typename Codec, typename T>
  void unless(const T&, const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }
  template <typename Codec, typename T>
  void entries(const char* key, const Codec& codec, const T&) {
    add(key, codec, false);
  }

  std::vector<Field> all;

 private:
  template <typename Codec>
  void add(const char* key, const Codec& codec, bool required) {
    std::string unit;
    if constexpr (requires { codec.unit; }) unit = codec.unit;
    all.push_back({key, unit, required});
  }
};

void require_known(const JsonField& object, const std::string& where, const Names& names) {
  for (const auto& [key, value] : object.entries()) {
    if (std::find(names.begin(), names.end(), key) == names.end())
      throw unknown_name(where + "field", key, names);
  }
}

/// A value with evidence. Least and most are no specification: they tell bytes from MiB and Hz from MHz.
template <typename T, typename Codec>
struct FactOf {
  Codec codec;
  const char* unit = "";
  double least = 0, most = 1e300;

  Json write(const Fact<T>& fact) const {
    return {{"value", codec.write(fact.value)}, {"kind", fact.kind}, {"source", fact.source}};
  }
  Fact<T> read(const JsonField& field) const {
    static const Names kinds = {"datasheet", "measured", "derived", "assumed", "unverified"};
    const JsonField value = field.at("value");
    Fact<T> fact{codec.read(value), field.at("source").text(), field.at("kind").text()};
    if constexpr (std::is_arithmetic_v<T>) {
      const double number = static_cast<double>(fact.value);
      if (number < least || number > most)
        value.refuse(fmt::format("must be in {}: {:g} ... {:g} is credible", unit, least, most));
    }
    if (std::find(kinds.begin(), kinds.end(), fact.kind) == kinds.end())
      field.at("kind").refuse(fmt::format("must be one of {}", fmt::join(kinds, ", ")));
    if (fact.source.empty()) field.at("source").refuse("must say where the number came from");
    return fact;
  }
};

FactOf<std::int64_t, Integer> count_of(const char* unit, double least, double most) {
  return {{1}, unit, least, most};
}
FactOf<double, Positive> number_of(const char* unit, double least, double most) {
  return {{}, unit, least, most};
}

template <typename T>
Names field_names() {
  FieldNames fields;
  list(fields, T{});
  Names names;
  for (const FieldNames::Field& field : fields.all) names.emplace_back(field.name);
  return names;
}

template <typename T>
struct PartsOf {
  Json write(const std::vector<T>& parts) const {
    Json json = Json::array();
    for (const T& part : parts) json.push_back(Part<T>{}.write(part));
    return json;
  }
  std::vector<T> read(const JsonField& field) const {
    std::vector<T> parts;
    for (const JsonField& part : field.items()) parts.push_back(Part<T>{}.read(part));
    return parts;
  }
};

}  // namespace

template <typename Fields>
static void list(Fields& fields, Of<Fields, PassProgress>& pass) {
  fields.required("kernel", Text{}, pass.kernel);
  fields.required("pass", Text{}, pass.pass);
  fields.required("head_dim", Integer{1, kMaxHeadDim}, pass.head_dim);
  fields.required("dtype", Named(parse_element_type), pass.dtype);
  fields.required("younger_rate", StepRate{}, pass.rates.younger_rate);
  fields.required("alone_rate", StepRate{}, pass.rates.alone_rate);
  fields.unless(0.0, "step_cv", Positive{}, pass.rates.step_cv);
  fields.unless(0.0, "tpc_cv", Positive{}, pass.rates.tpc_cv);
  fields.unless(0.0, "clock_cv", Positive{}, pass.rates.clock_cv);
}

template <typename Fields>
static void list(Fields& fields, Of<Fields, Machine>& machine) {
  constexpr std::int64_t kMostWays = 1024;
  const FactOf<std::int64_t, Integer> ways{{1, kMostWays}};
  fields.required("name", Text{}, machine.name);
  fields.required("title", Text{}, machine.title);
  fields.required("chip", Text{}, machine.chip);
  fields.required("sm_count", count_of("SMs", 1, 4096), machine.sm_count);
  fields.required("shared_bytes_per_sm", count_of("bytes", 0x1p13, 0x1p26), machine.shared_bytes_per_sm);
  fields.required("shared_bytes_per_cta", count_of("bytes", 0x1p13, 0x1p26), machine.shared_bytes_per_cta);
  fields.required("on_chip_bytes_per_sm", count_of("bytes", 0x1p15, 0x1p28), machine.on_chip_bytes_per_sm);
  fields.required("ctas_per_sm", count_of("CTAs", 1, 1024), machine.ctas_per_sm);
  fields.required("l2_bytes", count_of("bytes", 0x1p17, 0x1p36), machine.l2_bytes);
  fields.required("l2_effective_bytes", count_of("bytes", 0, 0x1p36), machine.l2_effective_bytes);
  fields.optional("clock_cv", FactOf<double, Positive>{{}, "", 0, 1}, machine.clock_cv);
  fields.optional("cta_progress", FactOf<std::vector<PassProgress>, PartsOf<PassProgress>>{},
                  machine.cta_progress);
  fields.optional("l2_ways", ways, machine.l2_ways);
  fields.optional("l2_dirty_ways", ways, machine.l2_dirty_ways);
  fields.optional("sm_groups", FactOf<std::vector<SmGroup>, PartsOf<SmGroup>>{}, machine.sm_groups);
  fields.optional("dram_bytes", count_of("bytes", 1e9, 1e13), machine.dram_bytes);
  fields.required("dram_bytes_per_second", number_of("bytes a second", 1e9, 1e15),
                  machine.dram_bytes_per_second);
  fields.optional("l2_bytes_per_second", number_of("bytes a second", 1e10, 1e16),
                  machine.l2_bytes_per_second);
  fields.optional("link_bytes_per_second", number_of("bytes a second, in one direction", 1e8, 1e14),
                  machine.link_bytes_per_second);
  fields.optional("link_latency_seconds", number_of("seconds a transfer", 1e-9, 1),
                  machine.link_latency_seconds);
  fields.optional("launch_seconds", number_of("seconds a launch", 1e-9, 1), machine.launch_seconds);
  fields.required("sm_clock_hz", number_of("Hz", 1e8, 1e10), machine.sm_clock_hz);
  fields.optional("exponentials_per_clock_per_sm", count_of("a clock", 1, 1024),
                  machine.exponentials_per_clock_per_sm);
  fields.entries(kPeaks, number_of("FLOP a second", 1e9, 1e18), machine.peak_flops_per_second);
}

namespace {

FieldNames machine_fields() {
  FieldNames fields;
  list(fields, Machine{});
  return fields;
}

/// Nothing, null, or a fact without a value: as the template has it.
bool missing(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return true;
  return found->is_object() && found->contains("value") && found->at("value").is_null();
}

/// Refuses a file with a field that nothing reads, or with fields missing: all of them in one sentence.
void require_machine_fields(const std::string& source, const JsonField& machine) {
  refuse_records(source, machine.value());
  require_known(machine, source + ": ", field_names<Machine>());
  for (const auto& [name, fact] : machine.entries()) {
    if (name == kPeaks || !fact.value().is_object()) continue;
    require_known(fact, source + ": " + name + " ", {"value", "kind", "source"});
    for (const auto& [list, names] :
         {std::pair("cta_progress", field_names<PassProgress>()), {"sm_groups", field_names<SmGroup>()}}) {
      if (name != list || !fact.has("value")) continue;
      for (const JsonField& part : fact.at("value").items())
        require_known(part, source + ": " + name + " ", names);
    }
  }
  for (const auto& [type, peak] : machine.has(kPeaks) ? machine.at(kPeaks).entries() : Entries{})
    require_known(peak, source + ": " + kPeaks + "." + type + " ", {"value", "kind", "source"});
  Names lacking;
  for (const FieldNames::Field& field : machine_fields().all) {
    const bool needed = field.required || field.name == kPeaks;
    if (needed && missing(machine.value(), field.name)) lacking.emplace_back(field.name);
  }
  if (lacking.empty()) return;
  throw BadInput(fmt::format("{}: {} {} missing (tilescope list machines --template prints a whole file)",
                             source, fmt::join(lacking, ", "), lacking.size() == 1 ? "is" : "are"));
}

/// What fields that are credible each by itself must be together.
void require_one_machine(const JsonField& field, const Machine& machine) {
  const auto value = [&field](const char* name) { return field.at(name).at("value"); };
  value("l2_effective_bytes").integer(1, machine.l2_bytes.value);
  for (const auto& [type, peak] : field.at(kPeaks).entries()) {
    try {
      parse_element_type(type);
    } catch (const BadInput& error) {
      peak.refuse(error.what());
    }
  }
  if (!machine.l2_ways && !machine.sm_groups) return;
  const std::int64_t ways = value("l2_ways").integer();
  std::int64_t sms = 0;
  for (const JsonField& group : value("sm_groups").items()) {
    sms += group.at("sms").integer();
    group.at("partition").integer(0, kL2Partitions - 1);
  }
  if (sms != machine.sm_count.value)
    value("sm_groups").refuse(fmt::format("must have {} SMs in all", machine.sm_count.value));
  if (machine.l2_dirty_ways) value("l2_dirty_ways").integer(1, ways);
  if (machine.split_l2()->sets() < SplitL2Shape::kLeastSets) {
    value("l2_ways").refuse(fmt::format("must leave {} sets or more to half of an L2 of {} bytes",
                                        SplitL2Shape::kLeastSets, machine.l2_bytes.value));
  }
}

/// @throws MachineLacks where the program was moved without them
fs::path machine_folder() {
  const fs::path folder = installed_file("share/tilescope/machines");
  std::error_code ignored;
  if (fs::is_directory(folder, ignored)) return folder;
  throw MachineLacks("the machine files are missing: they belong into " + folder.string() +
                     ", and --machine FILE.json takes one from anywhere");
}

/// @throws BadInput on a name that TileScope does not ship
std::string shipped_file(const std::string& name) {
  const Names names = machine_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return machine_folder() / (name + ".json");
  const UnknownName unknown = unknown_name("machine", name, names);
  throw UnknownName("machine", unknown.value(), unknown.allowed() + "; or FILE.json", unknown.nearest());
}

/// The whole machine of a file that holds what it adds to another; peaks are added type by type.
Json with_base(const std::string& source, Json added) {
  if (!added.is_object() || !added.contains(kBase)) return added;
  const JsonField base = JsonField(source, added).at(kBase);
  const std::string path = shipped_file(base.text());
  Json whole = parse_json(path, read_text_file(path));
  if (whole.contains(kBase)) base.refuse("must be a machine that stands alone");
  added.erase(kBase);
  for (const auto& [key, value] : added.items()) {
    if (key == kPeaks && value.is_object()) {
      whole[key].update(value);
    } else {
      whole[key] = value;
    }
  }
  return whole;
}

/// Records know a machine by its name, which therefore must not mean two.
void require_own_name(const std::string& path, const Machine& machine) {
  const fs::path shipped = machine_folder() / (machine.name + ".json");
  std::error_code ignored;
  if (!fs::exists(shipped, ignored) || parse_machine(shipped, read_text_file(shipped)) == machine) return;
  throw BadInput(path + ": name", machine.name,
                 "must be a name of its own: the machine of that name that TileScope ships is another");
}

std::string file_text(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Machine parse_machine(const std::string& source, std::string_view text) {
  const Json json = with_base(source, parse_json(source, text));
  const JsonField field(source, json);
  require_machine_fields(source, field);
  Machine machine = Part<Machine>{}.read(field);
  require_one_machine(field, machine);
  return machine;
}

std::string to_json_text(const Machine& machine) { return file_text(Part<Machine>{}.write(machine)); }

std::string to_json_text(const Machine& machine, const Machine& base) {
  const Json whole = Part<Machine>{}.write(machine), common = Part<Machine>{}.write(base);
  Json added{{"name", machine.name}, {kBase, base.name}};
  for (const auto& [key, value] : whole.items()) {
    if (!common.contains(key) || common.at(key) != value) added[key] = value;
  }
  return file_text(added);
}

std::string machine_template() {
  const auto fact = [](const std::string& unit) {
    return Json{{"value", nullptr},
                {"kind", "datasheet, measured, derived, assumed or unverified"},
                {"source", "where the number came from; in " + unit}};
  };
  Json machine;
  for (const FieldNames::Field& field : machine_fields().all) {
    if (field.name == kPeaks) {
      for (const char* type : {"fp32", "fp16", "bf16"}) machine[kPeaks][type] = fact(field.unit);
    } else if (!field.unit.empty()) {
      machine[field.name] = fact(field.unit + (field.required ? "" : "; may be left out"));
    } else if (field.required) {
      machine[field.name] = nullptr;
    }
  }
  return file_text(machine);
}

Names machine_names() {
  Names names;
  for (const fs::directory_entry& entry : fs::directory_iterator(machine_folder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Machine load_machine(const std::string& name_or_path) {
  const bool is_path = name_or_path.ends_with(".json");
  const std::string path = is_path ? name_or_path : shipped_file(name_or_path);
  Machine machine = parse_machine(path, read_text_file(path));
  if (is_path) require_own_name(path, machine);
  return machine;
}

}  // namespace tilescope
