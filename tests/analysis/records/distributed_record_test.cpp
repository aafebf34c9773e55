// SPDX-License-Identifier: Apache-2.0
// Records of several GPUs: what is written is what is read.
#include "analysis/records/distributed_record.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "analysis/records/files/text_file.hpp"
#include "common/errors.hpp"
#include "tests/paths.hpp"

namespace tilescope {
namespace {

using Json = nlohmann::json;

/// Adds the keys of `before` that `after` lacks, or has another value for, as "runs.passes.time_s".
void add_lost(const Json& before, const Json& after, const std::string& path, std::set<std::string>& lost) {
  if (before.is_object() && after.is_object()) {
    for (const auto& [key, value] : before.items()) {
      const std::string own = path.empty() ? key : path + "." + key;
      after.contains(key) ? add_lost(value, after.at(key), own, lost) : void(lost.insert(own));
    }
  } else if (before.is_array() && after.is_array() && before.size() == after.size()) {
    for (std::size_t i = 0; i < before.size(); ++i) add_lost(before[i], after[i], path, lost);
  } else if (before != after) {
    lost.insert(path);
  }
}

TEST_CASE("the committed records of several GPUs lose no field that a command writes") {
  int records = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(TILESCOPE_SOURCE_DIR) + "/reports/data")) {
    const std::string path = entry.path().string();
    if (entry.path().filename().string().rfind("ranks-", 0) != 0) continue;
    const std::string text = read_text_file(path);
    if (Json::parse(text).at("schema") != kDistributedSchema) continue;
    CAPTURE(path);
    ++records;
    const std::string again = to_json_text(parse_distributed_record(path, text));
    std::set<std::string> lost;
    add_lost(Json::parse(text), Json::parse(again), "", lost);
    lost.erase("runs.passes.flops_per_second");  // no command has written it since the earliest prediction
    for (const std::string& key : lost) FAIL_CHECK(key << " is not read");
  }
  CHECK(records > 10);
}

TEST_CASE("a damaged record of several GPUs is refused, with the field's name") {
  const std::string text =
      R"({"schema": "tilescope.distributed/1", "argv": [], "runs": [{"problem": {"batch": 1,
    "heads": 2, "heads_kv": 1, "seqlen_q": 64, "seqlen_k": 64, "head_dim": 64, "dtype": "bf16", "causal": true,
    "window": [-1, -1], "dropout": 0, "seed": 0}, "schedule": "ring", "gpus": 2, "passes": [{"name": "forward",
    "gpus": [{"link_sent_bytes": 64, "link_received_bytes": 64, "launches": 3}]}]}]})";
  REQUIRE(parse_distributed_record("record", text).runs.at(0).passes.at(0).busiest()->launches == 3);
  for (const auto& [from, to] : {std::pair("\"launches\": 3", "\"launches\": -3"),
                                 std::pair("\"link_sent_bytes\": 64", "\"link_sent_bytes\": \"nan\""),
                                 std::pair("\"gpus\": 2", "\"gpus\": 0")}) {
    std::string damaged = text;
    damaged.replace(damaged.find(from), std::string(from).size(), to);
    CAPTURE(damaged);
    const std::string key = std::string(from).substr(1, std::string(from).find('"', 1) - 1);
    CHECK_THROWS_WITH_AS(parse_distributed_record("record", damaged), doctest::Contains(key.c_str()),
                         BadInput);
  }
}

}  // namespace
}  // namespace tilescope
