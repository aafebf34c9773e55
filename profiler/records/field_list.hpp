// SPDX-License-Identifier: Apache-2.0
// One list of fields for each part of a record serves its writer and its reader:
//
//   template <typename Fields>
//   void list(Fields& fields, Of<Fields, LaunchRecord>& launch) {
//     fields.required("grid", Extent{}, launch.grid);
//     fields.optional("registers", kCount, launch.registers);
//   }
//
// A codec (Text, Number, ...) says how a value stands in JSON and what of it is refused.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/errors.hpp"
#include "profiler/records/json_fields.hpp"

namespace tilescope {

/// Makes a JSON object of a part, its fields in the order of the list.
class FieldWriter {
 public:
  static constexpr bool kReads = false;

  template <typename Codec, typename T>
  void required(const char* key, const Codec& codec, const T& value) {
    json[key] = codec.write(value);
  }
  template <typename Codec, typename T>
  void optional(const char* key, const Codec& codec, const std::optional<T>& value) {
    if (value) json[key] = codec.write(*value);
  }
  /// Left out where it is `absent`.
  template <typename Codec, typename T>
  void unless(const T& absent, const char* key, const Codec& codec, const T& value) {
    if (value != absent) json[key] = codec.write(value);
  }
  /// Always written; where it is missing, the part keeps what it has without it.
  template <typename Codec, typename T>
  void added(const char* key, const Codec& codec, const T& value) {
    json[key] = codec.write(value);
  }
  template <typename Codec, typename T>
  void items(const char* key, const Codec& codec, const std::vector<T>& values) {
    json[key] = Json::array();
    for (const T& value : values) json[key].push_back(codec.write(value));
  }
  /// Left out where there are none, as entries().
  template <typename Codec, typename T>
  void items_if_any(const char* key, const Codec& codec, const std::vector<T>& values) {
    if (!values.empty()) items(key, codec, values);
  }
  template <typename Codec, typename T>
  void entries(const char* key, const Codec& codec, const std::map<std::string, T>& values) {
    for (const auto& [name, value] : values) json[key][name] = codec.write(value);
  }

  void check(bool /*right*/, const char* /*key*/, const char* /*allowed*/) {}

  Json json = Json::object();
};

/// Fills a part from a JSON object.
class FieldReader {
 public:
  static constexpr bool kReads = true;

  explicit FieldReader(const JsonField& object) : object_(object) {}

  template <typename Codec, typename T>
  void required(const char* key, const Codec& codec, T& value) {
    value = static_cast<T>(codec.read(object_.at(key)));
  }
  template <typename Codec, typename T>
  void optional(const char* key, const Codec& codec, std::optional<T>& value) {
    if (object_.has(key)) value = static_cast<T>(codec.read(object_.at(key)));
  }
  template <typename Codec, typename T>
  void unless(const T& absent, const char* key, const Codec& codec, T& value) {
    value = object_.has(key) ? static_cast<T>(codec.read(object_.at(key))) : absent;
  }
  template <typename Codec, typename T>
  void added(const char* key, const Codec& codec, T& value) {
    if (object_.has(key)) required(key, codec, value);
  }
  template <typename Codec, typename T>
  void items(const char* key, const Codec& codec, std::vector<T>& values) {
    for (const JsonField& item : object_.at(key).items()) values.push_back(codec.read(item));
  }
  template <typename Codec, typename T>
  void items_if_any(const char* key, const Codec& codec, std::vector<T>& values) {
    if (object_.has(key)) items(key, codec, values);
  }
  template <typename Codec, typename T>
  void entries(const char* key, const Codec& codec, std::map<std::string, T>& values) {
    if (!object_.has(key)) return;
    for (const auto& [name, entry] : object_.at(key).entries()) values[name] = codec.read(entry);
  }
  /// Refuses fields that are right each by itself but not together, `key` among them.
  void check(bool right, const char* key, const char* allowed) {
    if (!right) object_.at(key).refuse(allowed);
  }

 private:
  const JsonField& object_;
};

/// What a list is called with: a part to fill, or one to write.
template <typename Fields, typename T>
using Of = std::conditional_t<Fields::kReads, T, const T>;

/// A part with a list of its own.
template <typename T>
struct Part {
  Json write(const T& part) const {
    FieldWriter fields;
    list(fields, part);
    return std::move(fields.json);
  }
  T read(const JsonField& object) const {
    T part;
    FieldReader fields(object);
    list(fields, part);
    return part;
  }
};

template <typename T>
Json record_json(std::string_view schema, const T& record) {
  FieldWriter fields;
  fields.json["schema"] = schema;
  list(fields, record);
  return std::move(fields.json);
}
/// The file of a record. Bytes that are not UTF-8 are replaced; they must not make a record impossible.
inline std::string record_text(const Json& record) {
  return record.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// The codecs of plain values.

struct Text {
  Json write(const std::string& text) const { return text; }
  std::string read(const JsonField& field) const { return field.text(); }
};

struct Flag {
  Json write(bool flag) const { return flag; }
  bool read(const JsonField& field) const { return field.boolean(); }
};

struct Integer {
  std::int64_t least = -kMostCount, most = kMostCount;
  Json write(std::int64_t value) const { return value; }
  std::int64_t read(const JsonField& field) const { return field.integer(least, most); }
};

inline constexpr Integer kCount{0};  // bytes, rows

/// Finite, or one of the strings of json_number.
struct Number {
  Json write(double value) const { return json_number(value); }
  double read(const JsonField& field) const { return field.number(); }
};

/// Likewise, and not negative: how far something is from another.
struct Distance {
  Json write(double value) const { return json_number(value); }
  double read(const JsonField& field) const {
    if (field.number() < 0) field.refuse("must not be negative");
    return field.number();
  }
};

/// A finite number of a range.
struct Within {
  double least = std::numeric_limits<double>::lowest(), most = std::numeric_limits<double>::max();
  Json write(double value) const { return json_number(value); }
  double read(const JsonField& field) const { return field.finite(least, most); }
};

struct Positive {
  Json write(double value) const { return value; }
  double read(const JsonField& field) const { return field.positive(); }
};

/// An enumerator by its name.
template <typename T>
struct Named {
  T (*parse)(std::string_view);  // throws BadInput
  Json write(T value) const { return to_string(value); }
  T read(const JsonField& field) const {
    try {
      return parse(field.text());
    } catch (const BadInput& error) {
      field.refuse(error.what());
    }
  }
};
template <typename T>
Named(T (*)(std::string_view)) -> Named<T>;

}  // namespace tilescope
