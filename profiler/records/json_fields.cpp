// SPDX-License-Identifier: Apache-2.0
#include "profiler/records/json_fields.hpp"

#include <cmath>

#include "common/errors.hpp"

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

Json parse_json(const std::string& source, std::string_view text) {
  std::size_t values = 0;
  const auto within_limits = [&](int depth, Json::parse_event_t event, Json&) {
    using Event = Json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= kDeepest)
      throw BadInput(source + " is nested deeper than " + std::to_string(kDeepest));
    if ((opens || event == Event::value) && ++values > kMostValues)
      throw BadInput(source + " holds more than " + std::to_string(kMostValues) + " values");
    return true;
  };
  try {
    return Json::parse(text, within_limits);
  } catch (const Json::parse_error& error) {
    if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) throw BadInput(source + " is empty");
    const bool cut_off = error.byte > text.size();
    throw BadInput(
        source + " is not valid JSON: " +
        (cut_off ? "it ends in the middle, so it was not written to its end" : without_number(error.what())));
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
  constexpr std::uint64_t kHigh = std::numeric_limits<std::int64_t>::max();
  const bool too_big = value_->is_number_unsigned() && value_->get<std::uint64_t>() > kHigh;
  if (value_->is_number_integer() && !too_big) {
    const std::int64_t number = value_->get<std::int64_t>();
    if (least <= number && number <= most) return number;
  }
  std::string allowed = "must be an integer";
  refuse(allowed + " in " + std::to_string(least) + " ... " + std::to_string(most));
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

double JsonField::finite(double least, double most) const {
  constexpr double kLowest = std::numeric_limits<double>::lowest(),
                   kHighest = std::numeric_limits<double>::max();
  const double value = value_->is_number() ? value_->get<double>() : std::nan("");
  if (value >= least && value <= most) return value;
  std::string allowed = "must be a number";
  if (least != kLowest) allowed += " of at least " + Json(least).dump();
  if (most != kHighest)
    allowed += std::string(least != kLowest ? " and" : " of") + " at most " + Json(most).dump();
  refuse(allowed);
}

double JsonField::positive() const {
  if (!value_->is_number() || !(value_->get<double>() > 0)) refuse("must be a number above 0");
  return value_->get<double>();
}

}  // namespace tilescope
