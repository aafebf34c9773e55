// SPDX-License-Identifier: Apache-2.0
// Arrays of objects as tables: what is packed comes back, whatever the fields; damage is named.
#include "profiler/records/json_tables.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>

using namespace tilescope;

namespace {

using Json = nlohmann::ordered_json;
using Sorted = nlohmann::json;  // equal whatever the order of keys

Json unpacked_again(const Json& json) { return without_tables(Json::parse(table_text(with_tables(json)))); }

void check_back(const Json& json) {
  CAPTURE(json.dump());
  const Json again = unpacked_again(json);
  CHECK(Sorted::parse(again.dump()) == Sorted::parse(json.dump()));
  CHECK(table_text(with_tables(again)).size() == table_text(with_tables(json)).size());
}

std::string table_complaint(const std::string& text) {
  try {
    without_tables(Json::parse(text));
  } catch (const DamagedTable& error) {
    return error.what();
  }
  return "";
}

/// Objects three deep, with arrays of objects in them, of few names and values, so that many coincide.
Json random_object(std::mt19937& random, int depth) {
  Json object = Json::object();
  const std::string names[] = {"a", "b", "bytes.sum", "x/y", "columns"};
  for (unsigned i = 0; i < 1 + random() % 4; ++i) {
    Json value;
    switch (random() % (depth > 0 ? 8 : 5)) {
      case 0:
        value = random() % 3;
        break;
      case 1:
        value = 0.0;
        break;
      case 2:
        value = "0";
        break;
      case 3:
        value = Json::array({1, random() % 2});
        break;
      case 4:
        value = Json::object();
        break;
      case 5:
        value = random_object(random, depth - 1);
        break;
      default:
        value = Json::array();
        for (unsigned k = 0; k < random() % 4; ++k) value.push_back(random_object(random, depth - 1));
    }
    object[names[random() % std::size(names)]] = value;
  }
  return object;
}

}  // namespace

TEST_CASE("fields that all have, fields that are equal, absent fields and arrays in rows come back") {
  const Json json = Json::parse(R"({"schema": "s", "runs": [
    {"kernel": "k", "tile": {"m": 1, "n": 1}, "passes": [{"name": "f", "b": 7}, {"name": "d"}]},
    {"kernel": "k", "tile": {"m": 2, "n": 2}, "window": [-1, -1], "passes": [{"name": "f", "b": 8}]},
    {"kernel": "k", "tile": {"m": 3, "n": 3}}]})");
  check_back(json);
  const std::string text = table_text(with_tables(json));
  CHECK(Json::parse(text)["runs"]["every"] == Json{{"kernel", "k"}});
  CHECK(Json::parse(text)["runs"]["same"] == Json{{"tile/n", "tile/m"}});
  CHECK(text.find("\n[1,[\n [\"f\",7],\n [\"d\",null]],null],\n") != std::string::npos);
}

TEST_CASE("an integer is not the same as a fraction of that value") {
  const Json json = Json::parse(R"({"runs": [{"a": 0, "b": 0.0}, {"a": 1, "b": 1.0}]})");
  CHECK(unpacked_again(json).dump() == json.dump());
}

TEST_CASE("random objects come back") {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    Json json{{"runs", Json::array()}};
    for (unsigned i = 0; i < 1 + random() % 4; ++i) json["runs"].push_back(random_object(random, 3));
    check_back(json);
  }
}

TEST_CASE("arrays that come again and again stand once, and so do the rows of tables in rows") {
  Json json{{"runs", Json::array()}};
  for (int i = 0; i < 60; ++i) {
    json["runs"].push_back({{"window", {-1 - i % 2, "a long word"}},
                            {"passes", {{{"name", "forward"}, {"tile", 128 << i % 3}}, {{"name", "delta"}}}},
                            {"grid", {i, i, i}}});
  }
  json["runs"][7].erase("passes");
  check_back(json);
  const Json table = Json::parse(table_text(with_tables(json)))["runs"];
  CHECK(table["columns"][0] ==
        Json{{"column", "window"}, {"values", {{-1, "a long word"}, {-2, "a long word"}}}});
  CHECK(table["columns"][1]["values"].size() == 3);
  CHECK(table["columns"][1]["columns"][1] == "tile");
  CHECK(table["columns"][2] == "grid");  // never twice the same
  CHECK(table["rows"][4] == Json{0, 1, {4, 4, 4}});
  CHECK(table["rows"][7][1].is_null());
}

TEST_CASE("tables that call their values texts are read too") {
  const Json json =
      Json::parse(R"({"r": {"columns": [{"column": "a", "texts": ["x", "y"]}], "rows": [[1]]}})");
  CHECK(without_tables(json) == Json::parse(R"({"r": [{"a": "y"}]})"));
}

TEST_CASE("texts that come again and again stand once") {
  const std::string first = "void first_kernel<" + std::string(600, 'a') + ">()";
  const std::string second = "void second_kernel<" + std::string(600, 'b') + ">()";
  Json json{{"kernels", Json::array()}};
  for (const std::string& name : {first, second, first, second}) {
    json["kernels"].push_back({{"name", name}, {"type", "fp16"}, {"launch", {{"of", name}}}});
  }
  json["kernels"][2]["type"] = "fp32";
  json["kernels"].push_back({{"type", "fp32"}});
  check_back(json);
  const std::string text = table_text(with_tables(json));
  CHECK(text.find(first) == text.rfind(first));
  const Json table = Json::parse(text)["kernels"];
  CHECK(table["columns"] == Json{{{"column", "name"}, {"values", {first, second}}}, "type"});
  CHECK(table["rows"] == Json{{0, "fp16"}, {1, "fp16"}, {0, "fp32"}, {1, "fp16"}, {nullptr, "fp32"}});
  CHECK(table["same"] == Json{{"launch/of", "name"}});
}

TEST_CASE("what holds no table is left as it is") {
  for (const char* text : {"[]", "3", R"({"a": [], "b": [1, {"c": 2}], "rows": 1})"}) {
    CHECK(without_tables(Json::parse(text)).dump() == Json::parse(text).dump());
  }
}

TEST_CASE("a damaged table is refused by what is wrong with it") {
  CHECK(table_complaint(R"({"r": {"columns": ["a"], "rows": [[1], [1, 2]]}})").find("1 cells, not [1,2]") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": 3, "rows": []}})").find("columns") != std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": [], "rows": 3}})").find("rows") != std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": [7], "rows": [[1]]}})").find("names as columns") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": ["a", "a/b"], "rows": [[1, 2]]}})").find("a/b") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"every": 1, "columns": ["a"], "rows": [[1]]}})").find("every") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"same": {"b": 1}, "columns": ["a"], "rows": [[1]]}})").find("b") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": [{"column": "a"}], "rows": [[[1]]]}})").find("columns") !=
        std::string::npos);
  CHECK(table_complaint(R"({"r": {"columns": [{"column": "a", "columns": ["b"]}], "rows": [[1]]}})")
            .find("must have rows, not 1") != std::string::npos);
  for (const char* place : {"2", "-1", "\"x\"", "0.5"}) {
    CAPTURE(place);
    const std::string text =
        std::string(R"({"r": {"columns": [{"column": "a", "values": ["x", "y"]}], "rows": [[)") + place +
        "]]}}";
    CHECK(table_complaint(text).find(std::string("has ") + place + " for one of its 2 values of a") !=
          std::string::npos);
  }
  CHECK(table_complaint(R"({"r": {"columns": [{"column": "a", "values": 1}], "rows": [[0]]}})")
            .find("values") != std::string::npos);
}
