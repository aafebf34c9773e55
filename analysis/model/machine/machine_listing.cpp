// SPDX-License-Identifier: Apache-2.0
// What people read of a machine file: an empty one to fill in, and the numbers of a full one.
#include "analysis/model/machine/machine_fields.hpp"
#include "analysis/records/record_schemas.hpp"

namespace tilescope {

std::string machine_template() {
  const auto fact = [](const FieldNames::Field& field, bool needed) {
    const std::string meaning(meaning_of(field.name));
    return Json{{"value", nullptr},
                {"kind", "datasheet, measured, derived, assumed or unverified"},
                {"source", fmt::format("{}{}{}in {}{}", kNoSource, meaning, meaning.empty() ? "" : ", ",
                                       field.unit, needed ? "" : "; may be left out")}};
  };
  Json machine;
  for (const FieldNames::Field& field : fields_of<Machine>().all) {
    if (field.name == kProgress) continue;  // of no datasheet
    if (field.name == kPeaks) {
      for (const char* type : {"fp32", "fp16", "bf16"}) machine[kPeaks][type] = fact(field, false);
    } else if (!field.unit.empty()) {
      machine[field.name] = fact(field, field.required && !has_default(field.name));
    } else if (field.required) {
      machine[field.name] = nullptr;
    }
  }
  return machine_text(machine);
}

Json machine_schema() {
  Json schema = record_schema<Machine>("");
  Json& required = schema["required"];
  required.erase(std::remove_if(required.begin(), required.end(),
                                [](const Json& field) { return has_default(field.get<std::string>()); }),
                 required.end());
  required.push_back(kPeaks);
  return schema;
}

namespace {

/// "younger_rate 1.0, step_cv 0.03": which folds between words.
std::string members_text(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value.dump());
  return text;
}

}  // namespace

std::vector<MachineNumber> numbers_of(const Machine& machine) {
  std::vector<MachineNumber> numbers;
  const auto add = [&numbers](const std::string& field, const std::string& unit, const Json& fact) {
    const Json& value = fact.at("value");
    const std::string text = value.is_array()            ? fmt::format("{} entries", value.size())
                             : value.is_object()         ? members_text(value)
                             : value.is_number_integer() ? fmt::format("{}", value.get<std::int64_t>())
                                                         : fmt::format("{:g}", value.get<double>());
    numbers.push_back({field, text + (unit.empty() ? "" : " " + unit), fact.at("kind"), fact.at("source")});
  };
  const Json json = Part<Machine>{}.write(machine);
  for (const FieldNames::Field& field : fields_of<Machine>().all) {
    if (!json.contains(field.name) || !json.at(field.name).is_object()) continue;
    if (!is_group(field.name)) {
      add(field.name, field.unit, json.at(field.name));
      continue;
    }
    for (const auto& [name, fact] : json.at(field.name).items())
      add(fmt::format("{}.{}", field.name, name), field.unit, fact);
  }
  return numbers;
}

}  // namespace tilescope
