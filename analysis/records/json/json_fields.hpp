// SPDX-License-Identifier: Apache-2.0
// Reading JSON that may be damaged: every complaint names the file, the field, its value and what is allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope {

using Json = nlohmann::ordered_json;

/// The text of a file, or of standard input for "-".
/// @throws BadInput if it cannot be read
std::string read_text_file(const std::string& path);

/// @throws BadInput if `text` is not JSON; `source` is what the message calls it.
Json parse_json(const std::string& source, std::string_view text);

/// A JSON number, or a string for the values that JSON lacks ("nan", "inf", "-inf").
Json json_number(double value);

/// A JSON value together with where it stands. The value must outlive it.
class JsonField {
 public:
  JsonField(std::string source, const Json& value) : source_(std::move(source)), value_(&value) {}

  const Json& value() const { return *value_; }
  /// @throws BadInput always: "FILE: PATH = VALUE: allowed"
  [[noreturn]] void refuse(const std::string& allowed) const;

  bool has(const char* key) const;      // also refuses what is not an object
  JsonField at(const char* key) const;  // refuses a missing key
  /// The key, or in files from before it was called so, its former name.
  bool has(const char* key, const char* former) const { return has(key) || has(former); }
  JsonField at(const char* key, const char* former) const { return at(has(former) ? former : key); }
  std::vector<JsonField> items() const;  // of an array
  /// Keys and values of an object, in order.
  std::vector<std::pair<std::string, JsonField>> entries() const;

  std::string text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least = std::numeric_limits<std::int64_t>::min(),
                       std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  std::int64_t count() const { return integer(0); }  // bytes, FLOPs, rows: integers >= 0
  std::uint64_t seed() const;                        // any unsigned 64-bit integer
  double number() const;                             // finite, or one of the strings of json_number
  double positive() const;                           // finite and > 0

 private:
  JsonField(std::string source, std::string path, const Json& value)
      : source_(std::move(source)), path_(std::move(path)), value_(&value) {}

  std::string source_, path_;
  const Json* value_;
};

}  // namespace tilescope
