// SPDX-License-Identifier: Apache-2.0
// Reading JSON that may be damaged: every complaint names the file, the field, its value and what is allowed.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tilescope {

using Json = nlohmann::ordered_json;

/// Counts beyond it are not exact as doubles, and sums of them overflow.
inline constexpr std::int64_t kMostCount = (std::int64_t{1} << 53) - 1;

/// What a text may hold at most. No record needs a tenth of either; without limits a small text can take all
/// memory, or the stack of whatever walks through it.
inline constexpr int kDeepest = 32;
inline constexpr std::size_t kMostValues = std::size_t{1} << 22;

/// @throws BadInput if `text` is not JSON or exceeds the limits; `source` is what the message calls it.
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

  bool has(const char* key) const;       // also refuses what is not an object
  JsonField at(const char* key) const;   // refuses a missing key
  std::vector<JsonField> items() const;  // of an array
  /// Keys and values of an object, in order.
  std::vector<std::pair<std::string, JsonField>> entries() const;

  std::string text() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t least = -kMostCount, std::int64_t most = kMostCount) const;
  std::int64_t count() const { return integer(0); }  // bytes, rows: integers >= 0
  std::uint64_t seed() const;                        // any unsigned 64-bit integer
  double number() const;                             // finite, or one of the strings of json_number
  /// A number, none of those strings, in `least` ... `most`.
  double finite(double least = std::numeric_limits<double>::lowest(),
                double most = std::numeric_limits<double>::max()) const;
  double positive() const;  // finite and > 0

 private:
  JsonField(std::string source, std::string path, const Json& value)
      : source_(std::move(source)), path_(std::move(path)), value_(&value) {}

  std::string source_, path_;
  const Json* value_;
};

}  // namespace tilescope
