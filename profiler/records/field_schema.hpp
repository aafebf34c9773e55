// SPDX-License-Identifier: Apache-2.0
// The JSON schema of a record, from the list of fields that its writer and its reader have (field_list.hpp).
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "profiler/records/field_list.hpp"

namespace tilescope {

template <typename T>
Json part_schema();

template <typename T>
struct IsPart : std::false_type {};
template <typename T>
struct IsPart<Part<T>> : std::true_type {
  using Of = T;
};

/// What many fields are: it stands once, among the definitions of the whole (gather_definitions).
inline Json defined(const std::string& name, Json schema) {
  return {{"$ref", "#/$defs/" + name}, {"definition", std::move(schema)}};
}

/// Moves the definitions below `schema` into `all`, by name.
inline void gather_definitions(Json& schema, Json& all) {
  if (schema.is_object() && schema.contains("$ref") && schema.contains("definition")) {
    Json definition = std::move(schema["definition"]);
    schema.erase("definition");
    gather_definitions(definition, all);
    all[schema["$ref"].get<std::string>().substr(std::string_view("#/$defs/").size())] =
        std::move(definition);
  }
  if (!schema.is_structured()) return;
  for (Json& part : schema) gather_definitions(part, all);
}

/// The strings of json_number stand for the numbers that JSON lacks.
inline Json number_schema() {
  return defined("number", {{"anyOf", {{{"type", "number"}}, {{"enum", {"nan", "inf", "-inf"}}}}}});
}

/// Of so many items that are alike.
inline Json array_schema(const Json& item, int count) {
  return {{"type", "array"}, {"items", item}, {"minItems", count}, {"maxItems", count}};
}

/// How a codec's value stands in JSON: what the codec says itself, or what is known of the plain ones.
template <typename Codec>
Json schema_of(const Codec& codec) {
  if constexpr (requires { codec.schema(); }) {
    return codec.schema();
  } else if constexpr (IsPart<Codec>::value) {
    return part_schema<typename IsPart<Codec>::Of>();
  } else if constexpr (std::is_same_v<Codec, Flag>) {
    return {{"type", "boolean"}};
  } else if constexpr (std::is_same_v<Codec, Integer>) {
    const Json json{{"type", "integer"}, {"minimum", codec.least}, {"maximum", codec.most}};
    if (codec.most != kMostCount) return json;
    return codec.least == 0   ? defined("count", json)
           : codec.least == 1 ? defined("positive", json)
                              : defined("integer", json);
  } else if constexpr (std::is_same_v<Codec, Within>) {
    Json json{{"type", "number"}};
    if (codec.least > Within{}.least) json["minimum"] = codec.least;
    if (codec.most < Within{}.most) json["maximum"] = codec.most;
    return json;
  } else if constexpr (std::is_same_v<Codec, Positive>) {
    return {{"type", "number"}, {"exclusiveMinimum", 0}};
  } else if constexpr (std::is_same_v<Codec, Number> || std::is_same_v<Codec, Distance>) {
    return number_schema();
  } else {  // texts, and enumerators by their names
    return {{"type", "string"}};
  }
}

/// What a list is called with, beside the writer and the reader.
class FieldSchema {
 public:
  static constexpr bool kReads = false;

  template <typename Codec, typename T>
  void required(const char* key, const Codec& codec, const T&) {
    add(key, schema_of(codec), true);
  }
  template <typename Codec, typename T>
  void optional(const char* key, const Codec& codec, const T&) {
    add(key, schema_of(codec), false);
  }
  template <typename Codec, typename T>
  void unless(const T&, const char* key, const Codec& codec, const T&) {
    add(key, schema_of(codec), false);
  }
  template <typename Codec, typename T>
  void added(const char* key, const Codec& codec, const T&) {
    add(key, schema_of(codec), false);
  }
  template <typename Codec, typename T>
  void items(const char* key, const Codec& codec, const T&) {
    add(key, {{"type", "array"}, {"items", schema_of(codec)}}, true);
  }
  template <typename Codec, typename T>
  void items_if_any(const char* key, const Codec& codec, const T&) {
    add(key, {{"type", "array"}, {"items", schema_of(codec)}}, false);
  }
  template <typename Codec, typename T>
  void entries(const char* key, const Codec& codec, const T&) {
    add(key, {{"type", "object"}, {"additionalProperties", schema_of(codec)}}, false);
  }
  void check(bool /*right*/, const char* /*key*/, const char* /*allowed*/) {}

  /// Of an object that has these fields and no others.
  Json object() const {
    return {{"type", "object"},
            {"properties", properties_},
            {"required", required_},
            {"additionalProperties", false}};
  }

 private:
  void add(const char* key, Json schema, bool is_required) {
    properties_[key] = std::move(schema);
    if (is_required) required_.push_back(key);
  }

  friend Json record_schema_of(FieldSchema fields, std::string_view name);
  Json properties_ = Json::object(), required_ = Json::array();
};

template <typename T>
Json part_schema() {
  FieldSchema fields;
  list(fields, T{});
  return fields.object();
}

/// A whole file. @param name  what its field "schema" says; empty where it has none
inline Json record_schema_of(FieldSchema fields, std::string_view name) {
  if (!name.empty()) {
    fields.properties_["schema"] = {{"const", name}};
    fields.required_.push_back("schema");
  }
  Json json{{"$schema", "https://json-schema.org/draft/2020-12/schema"}};
  json.update(fields.object());
  Json definitions = Json::object();
  gather_definitions(json, definitions);
  if (!definitions.empty()) json["$defs"] = std::move(definitions);
  return json;
}

template <typename T>
Json record_schema(std::string_view name) {
  FieldSchema fields;
  list(fields, T{});
  return record_schema_of(std::move(fields), name);
}

}  // namespace tilescope
