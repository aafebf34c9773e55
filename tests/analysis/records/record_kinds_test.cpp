// SPDX-License-Identifier: Apache-2.0
// A file of another kind than a command wants is called by its name.
#include "analysis/records/record_kinds.hpp"
#include "analysis/records/files/text_file.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "analysis/model/machine/machine.hpp"
#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"
#include "profiler/records/kernel_record.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

std::string file_of_repository(const std::string& path) {
  return read_text_file(std::string(TILESCOPE_SOURCE_DIR) + "/" + path);
}

void check_told(const std::string& message, const std::vector<const char*>& parts) {
  CAPTURE(message);
  for (const char* part : parts) {
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

/// What a reader of runs says of a file.
std::string refusal_of(const std::string& text) {
  try {
    parse_run_record("x.json", text);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "none";
}

TEST_CASE("whoever is given another kind of record says what it is, what takes it and what is wanted") {
  check_told(refusal_of(R"({"schema": "tilescope.ceilings/1"})"),
             {"x.json: schema = \"tilescope.ceilings/1\": must be \"tilescope.run/1\", what `bench`",
              "; this is what `ceilings` wrote, which `report` and `ceilings --from` take"});
  check_told(refusal_of(R"({"schema": "tilescope.diff/1"})"), {"`diff` wrote, which no command takes"});
  check_told(refusal_of(R"({"schema": "tilescope.run/9"})"), {"this is of another version of TileScope"});
  const std::string unknown = refusal_of(R"({"schema": "somebody.else/1"})");
  check_told(unknown, {"somebody.else/1", "tilescope.run/1"});
  CHECK(unknown.find("this is") == std::string::npos);
  check_told(refusal_of(file_of_repository("analysis/model/machine/h200.json")),
             {"this is a machine, which `--machine` takes"});
  check_told(refusal_of("{}"), {"x.json is not a TileScope record: its field \"schema\" is missing"});
  check_told(refusal_of("[]"), {"must be an object"});
}

TEST_CASE("where several kinds are taken, all are named") {
  const Json json = Json::parse(R"({"schema": "tilescope.tiles/1"})");
  CHECK(require_kind("x", json, {kRunSchema, "tilescope.tiles/1"}) == "tilescope.tiles/1");
  CHECK_THROWS_WITH_AS(
      require_kind("x", json, {kRunSchema, kKernelsSchema}),
      doctest::Contains("must be \"tilescope.run/1\" or \"tilescope.kernels/1\"; this is what"), BadInput);
}

TEST_CASE("a record in place of a machine is called a record") {
  CHECK_THROWS_WITH_AS(parse_machine("x.json", file_of_repository("reports/data/ceilings-h200.json.gz")),
                       doctest::Contains("this is what `ceilings` wrote"), BadInput);
}

}  // namespace
}  // namespace tilescope
