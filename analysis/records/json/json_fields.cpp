// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/json/json_fields.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "common/errors.hpp"
#include "profiler/records/json_tables.hpp"

namespace tilescope {
namespace {

/// The value as JSON, cut to a length that fits an error message.
std::string shown(const Json& value) {
  constexpr std::size_t kMost = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

/// A message of the library without its own numbering of errors.
std::string without_number(const std::string& reason) {
  const std::size_t bracket = reason.find("] ");
  return bracket == std::string::npos ? reason : reason.substr(bracket + 2);
}

}  // namespace

std::string read_text_file(const std::string& path) {
  const bool standard_input = path == "-";
  std::FILE* file = standard_input ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) throw BadInput("file", path, std::string("cannot be read: ") + std::strerror(errno));
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t got = std::fread(buffer, 1, sizeof buffer, file)) text.append(buffer, got);
  const int error = std::ferror(file) ? errno : 0;
  if (!standard_input) std::fclose(file);
  if (error != 0) throw BadInput("file", path, std::string("cannot be read: ") + std::strerror(error));
  return text;
}

Json parse_json(const std::string& source, std::string_view text) {
  try {
    return without_tables(Json::parse(text));
  } catch (const DamagedTable& error) {
    throw BadInput(source + ": " + error.what());
  } catch (const Json::parse_error& error) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) throw BadInput(source + " is empty");
    const bool cut_off = error.byte > text.size();
    throw BadInput(fmt::format("{} is not valid JSON: {}", source,
                               cut_off ? "it ends in the middle, as what was written by halves does"
                                       : without_number(error.what())));
  } catch (const Json::exception& error) {  // a number that overflows
    throw BadInput(source + " is not valid JSON: " + without_number(error.what()));
  }
}

Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

void JsonField::refuse(const std::string& allowed) const {
  throw BadInput(path_.empty() ? source_ : source_ + ": " + path_, shown(*value_), allowed);
}

bool JsonField::has(const char* key) const {
  if (!value_->is_object()) refuse("must be an object");
  return value_->contains(key);
}

JsonField JsonField::at(const char* key) const {
  if (!has(key)) throw BadInput(source_ + ": " + (path_.empty() ? key : path_ + "." + key) + " is missing");
  return {source_, path_.empty() ? key : path_ + "." + key, value_->at(key)};
}

std::vector<JsonField> JsonField::items() const {
  if (!value_->is_array()) refuse("must be an array");
  std::vector<JsonField> fields;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    fields.push_back(JsonField(source_, path_ + "[" + std::to_string(i) + "]", (*value_)[i]));
  }
  return fields;
}

std::vector<std::pair<std::string, JsonField>> JsonField::entries() const {
  if (!value_->is_object()) refuse("must be an object");
  std::vector<std::pair<std::string, JsonField>> fields;
  for (const auto& [key, value] : value_->items()) {
    fields.emplace_back(key, JsonField(source_, path_.empty() ? key : path_ + "." + key, value));
  }
  return fields;
}

std::string JsonField::text() const {
  if (!value_->is_string()) refuse("must be a string");
  return value_->get<std::string>();
}

bool JsonField::boolean() const {
  if (!value_->is_boolean()) refuse("must be true or false");
  return value_->get<bool>();
}

std::int64_t JsonField::integer(std::int64_t least, std::int64_t most) const {
  constexpr std::int64_t kLow = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kHigh = std::numeric_limits<std::int64_t>::max();
  const bool too_big = value_->is_number_unsigned() && value_->get<std::uint64_t>() > std::uint64_t{kHigh};
  if (value_->is_number_integer() && !too_big) {
    const std::int64_t number = value_->get<std::int64_t>();
    if (least <= number && number <= most) return number;
  }
  std::string allowed = "must be an integer";
  if (least != kLow && most != kHigh) {
    allowed += " in " + std::to_string(least) + " ... " + std::to_string(most);
  } else if (least != kLow) {
    allowed += " of at least " + std::to_string(least);
  }
  refuse(allowed);
}

std::uint64_t JsonField::seed() const {
  if (!value_->is_number_unsigned()) refuse("must be an unsigned 64-bit integer");
  return value_->get<std::uint64_t>();
}

double JsonField::number() const {
  if (value_->is_number()) return value_->get<double>();
  if (*value_ == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (*value_ == "inf") return std::numeric_limits<double>::infinity();
  if (*value_ == "-inf") return -std::numeric_limits<double>::infinity();
  refuse("must be a number");
}

double JsonField::positive() const {
  if (!value_->is_number() || !(value_->get<double>() > 0)) refuse("must be a number above 0");
  return value_->get<double>();
}

}  // namespace tilescope
