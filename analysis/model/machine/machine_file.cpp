// SPDX-License-Identifier: Apache-2.0
// Machine files: their reader and their writer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "analysis/model/machine/machine.hpp"
#include "analysis/model/machine/machine_defaults.hpp"
#include "analysis/model/machine/machine_fields.hpp"
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

void require_known(const JsonField& object, const std::string& where, const Names& names) {
  for (const auto& [key, value] : object.entries()) {
    if (std::ranges::find(names, key) == names.end()) throw unknown_name(where + "field", key, names);
  }
}

template <typename T>
Names field_names() {
  Names names;
  for (const FieldNames::Field& field : fields_of<T>().all) names.push_back(field.name);
  return names;
}

/// Refuses a file with a field that nothing reads, or with fields missing: all of them in one sentence.
void require_machine_fields(const std::string& source, const JsonField& machine) {
  const Names kFact = {"value", "kind", "source"};
  refuse_records(source, machine.value());
  require_known(machine, source + ": ", field_names<Machine>());
  for (const auto& [name, fact] : machine.entries()) {
    if (is_group(name) || !fact.value().is_object()) continue;
    require_known(fact, source + ": " + name + " ", kFact);
    if (name != "sm_groups" || !fact.has("value")) continue;
    for (const JsonField& part : fact.at("value").items())
      require_known(part, source + ": " + name + " ", field_names<SmGroup>());
  }
  for (const char* group : {kPeaks, kProgress}) {
    for (const auto& [name, fact] : machine.has(group) ? machine.at(group).entries() : Entries{}) {
      const std::string where = source + ": " + group + "." + name + " ";
      if (!fact.value().is_object()) continue;  // refused where it is read
      require_known(fact, where, kFact);
      if (group == kProgress && fact.has("value"))
        require_known(fact.at("value"), where, field_names<ProgressRates>());
    }
  }
  Names lacking;
  for (const FieldNames::Field& field : fields_of<Machine>().all) {
    const bool needed = (field.required && !has_default(field.name)) || field.name == kPeaks;
    if (needed && !machine.has(field.name.c_str())) lacking.emplace_back(field.name);
  }
  if (lacking.empty()) return;
  throw BadInput(fmt::format("{}: {} {} missing (`tilescope list machines --template` prints a whole file)",
                             source, fmt::join(lacking, ", "), lacking.size() == 1 ? "is" : "are"));
}

/// Refuses a group of facts in which `parse` does not know a name.
template <typename Parse>
void require_names(const JsonField& machine, const char* group, Parse parse) {
  for (const auto& [name, fact] : machine.has(group) ? machine.at(group).entries() : Entries{}) {
    try {
      parse(name);
    } catch (const BadInput& error) {
      fact.refuse(error.what());
    }
  }
}

/// What fields that are credible each by itself must be together.
void require_one_machine(const JsonField& field, const Machine& machine) {
  const auto value = [&field](const char* name) { return value_of(field.at(name)); };
  if (const std::int64_t l2 = machine.l2_bytes.value; machine.l2_effective_bytes.value > l2)
    value("l2_effective_bytes").refuse(fmt::format("must be in 1 ... {}, the whole L2", l2));
  require_names(field, kPeaks, parse_element_type);
  require_names(field, kProgress, parse_math_unit);
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

/// "rtx5070ti" of "RTX-5070-Ti", as people write it.
std::string without_signs(const std::string& name) {
  std::string plain = lower_case(name);
  std::erase_if(plain, [](unsigned char c) { return std::isalnum(c) == 0; });
  return plain;
}

/// The machine of that name, or the only one of that chip: "h100" is h100-sxm. What was measured of one is no
/// other.
std::optional<std::string> meant_machine(const std::string& name, const Names& names) {
  Names of_chip;
  for (const std::string& known : names) {
    if (without_signs(known) == without_signs(name)) return known;
    const std::string chip = known.substr(0, known.find('-'));  // a word alone, as rtx, is none
    const bool numbered = chip.find_first_of("0123456789") != std::string::npos;
    if (numbered && chip == without_signs(name) && !known.ends_with(kMeasuredSuffix))
      of_chip.push_back(known);
  }
  return of_chip.size() == 1 ? std::optional(of_chip.front()) : std::nullopt;
}

/// @throws BadInput on a name that is none of one machine that TileScope ships
std::string shipped_file(const std::string& name) {
  const Names names = machine_names();
  if (const auto meant = meant_machine(name, names)) return machine_folder() / (*meant + ".json");
  Names alike;  // an edit away stands another GPU: b200 is no slip of h200
  for (const std::string& near : nearest_names(name, names)) {
    if (without_signs(near).find(without_signs(name)) != std::string::npos) alike.push_back(near);
  }
  const std::string guess = alike.empty() ? "" : fmt::format("did you mean {}? ", fmt::join(alike, " or "));
  throw UnknownName(
      "machine", "'" + name + "'",
      fmt::format("{0}must be one of {1}; for another GPU `tilescope list machines --template "
                  ">{2}.json` prints a file to fill in from its datasheet, which --machine {2}.json takes",
                  guess, fmt::join(names, ", "), name),
      alike);
}

/// The whole machine of a file that holds what it adds to another; peaks and rates are added one by one.
Json with_base(const std::string& source, Json added) {
  if (!added.is_object() || !added.contains(kBase)) return added;
  const JsonField base = JsonField(source, added).at(kBase);
  const std::string path = shipped_file(base.text());
  Json whole = parse_json(path, read_text_file(path));
  if (whole.contains(kBase)) base.refuse("must be a machine that stands alone");
  added.erase(kBase);
  for (const auto& [key, value] : added.items()) {
    if (is_group(key) && value.is_object()) {
      whole[key].update(value);
    } else {
      whole[key] = value;
    }
  }
  return whole;
}

/// A shipped file, understood once for as long as its text stays: a report asks for machines a thousand
/// times.
Machine parse_shipped(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::pair<std::string, Machine>> understood;  // by path: text and machine
  std::string text = read_text_file(path);
  const std::lock_guard lock(mutex);
  const auto known = understood.find(path);
  if (known != understood.end() && known->second.first == text) return known->second.second;
  Machine machine = parse_machine(path, text);
  understood[path] = {std::move(text), machine};
  return machine;
}

/// Records know a machine by its name, which therefore must not mean two.
void require_own_name(const std::string& path, const Machine& machine) {
  const fs::path shipped = machine_folder() / (machine.name + ".json");
  std::error_code ignored;
  if (!fs::exists(shipped, ignored) || parse_shipped(shipped) == machine) return;
  throw BadInput(path + ": name", machine.name,
                 "must be a name of its own: the machine of that name that TileScope ships is another");
}

}  // namespace

Machine parse_machine(const std::string& source, std::string_view text) {
  Json json = with_base(source, parse_json(source, text));
  if (json.is_object()) fill_in_defaults(json);
  const JsonField field(source, json);
  require_machine_fields(source, field);
  Machine machine = Part<Machine>{}.read(field);
  require_one_machine(field, machine);
  return machine;
}

std::string to_json_text(const Machine& machine) { return machine_text(Part<Machine>{}.write(machine)); }

std::string to_json_text(const Machine& machine, const Machine& base) {
  const Json whole = Part<Machine>{}.write(machine), common = Part<Machine>{}.write(base);
  Json added{{"name", machine.name}, {kBase, base.name}};
  for (const auto& [key, value] : whole.items()) {
    if (!common.contains(key) || common.at(key) != value) added[key] = value;
  }
  return machine_text(added);
}

Names machine_names() {
  Names names;
  for (const fs::directory_entry& entry : fs::directory_iterator(machine_folder())) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

Machine load_machine(const std::string& name_or_path) {
  if (!name_or_path.ends_with(".json")) return parse_shipped(shipped_file(name_or_path));
  Machine machine = parse_machine(name_or_path, read_text_file(name_or_path));
  require_own_name(name_or_path, machine);
  return machine;
}

}  // namespace tilescope
