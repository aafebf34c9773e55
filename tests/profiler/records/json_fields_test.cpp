// SPDX-License-Identifier: Apache-2.0
// What is damaged, too deep, too much or out of range is refused before anything is built from it.
#include "profiler/records/json_fields.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <string>

#include "common/errors.hpp"

namespace tilescope {
namespace {

std::string complaint(const std::function<void()>& read) {
  try {
    read();
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

std::string of_text(const std::string& text) {
  return complaint([&] { parse_json("f.json", text); });
}

std::string nested(int depth) { return std::string(depth, '[') + std::string(depth, ']'); }

}  // namespace

TEST_CASE("a text may nest to a depth and hold a number of values, and no more") {
  CHECK(of_text(nested(kDeepest)).empty());
  CHECK(of_text(nested(kDeepest + 1)) == "f.json is nested deeper than 32");
  CHECK(of_text(nested(200'000)) == "f.json is nested deeper than 32");  // no stack is that deep
  std::string objects;
  for (int i = 0; i < 20'000; ++i) objects += "{\"a\":";
  CHECK(of_text(objects) == "f.json is nested deeper than 32");
  std::string many = "[0";
  for (std::size_t i = 2; i < kMostValues; ++i) many += ",0";
  CHECK(of_text(many + "]").empty());
  CHECK(of_text(many + ",0]").find("holds more than") != std::string::npos);
  CHECK(of_text("[1e999]").find("f.json is not valid JSON") == 0);
}

TEST_CASE("counts are exact as doubles, and other numbers finite and in their range") {
  const auto of_value = [](const Json& value, auto read) {
    return complaint([&] { read(JsonField("f.json", value)); });
  };
  const auto count = [](const JsonField& field) { field.count(); };
  CHECK(of_value(kMostCount, count).empty());
  CHECK(of_value(kMostCount + 1, count).find("must be an integer in 0 ... 9007199254740991") !=
        std::string::npos);
  CHECK(of_value(std::uint64_t{1} << 63, count).find("must be an integer") != std::string::npos);
  CHECK_FALSE(of_value(-1, count).empty());
  CHECK_FALSE(of_value(-kMostCount - 1, [](const JsonField& field) { field.integer(); }).empty());
  const auto share = [](const JsonField& field) { field.finite(0, 1); };
  CHECK(of_value(1, share).empty());
  CHECK(of_value(7.5, share).find("must be a number of at least 0.0 and at most 1.0") != std::string::npos);
  CHECK_FALSE(of_value("nan", share).empty());
  CHECK_FALSE(of_value("inf", [](const JsonField& field) { field.finite(); }).empty());
}

}  // namespace tilescope
