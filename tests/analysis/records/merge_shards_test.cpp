// SPDX-License-Identifier: Apache-2.0
// The parts of a sweep become one record only where they are the parts of one sweep.
#include "analysis/records/merge_shards.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"
#include "tests/cli/diff_records.hpp"

namespace tilescope {
namespace {

std::pair<std::string, RunRecord> part(const std::string& shard,
                                       const std::string& when = "2026-01-01T00:00:00Z") {
  RunRecord record = testing::record_of({testing::run_of("gpu:" + shard)});
  record.argv = {"tilescope", "simulate", "--shard", shard, "--json", shard + ".json"};
  record.git = {"0123abcd", false};
  record.when = when;
  record.shard = shard;
  return {shard + ".json", record};
}

std::string complaint(std::vector<std::pair<std::string, RunRecord>> parts) {
  try {
    merge_shards(std::move(parts));
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("parts in any order are the whole, made when the last of them was") {
  const RunRecord whole =
      merge_shards({part("1/2", "2026-01-02T00:00:00Z"), part("0/2", "2026-01-01T00:00:00Z")});
  REQUIRE(whole.runs.size() == 2);
  CHECK(whole.runs[0].kernel == "gpu:0/2");
  CHECK(whole.argv == std::vector<std::string>{"tilescope", "simulate"});
  CHECK_FALSE(whole.shard);
  CHECK(whole.when == "2026-01-02T00:00:00Z");
  CHECK(merge_shards({part("0/2", "2026-01-02T00:00:00Z"), part("1/2")}).when == "2026-01-02T00:00:00Z");
}

TEST_CASE("parts of two commits, of two commands, and the same part twice are refused") {
  auto other = part("1/2");
  other.second.git.sha = "4567abcd";
  CHECK(contains(complaint({part("0/2"), other}), "same commit"));
  other = part("1/2");
  other.second.git.dirty = true;
  CHECK(contains(complaint({part("0/2"), other}), "same commit"));
  other = part("1/2");
  other.second.argv.push_back("--causal");
  CHECK(contains(complaint({part("0/2"), other}), "same command"));
  CHECK(contains(complaint({part("0/2"), part("0/2")}), "given twice"));
  CHECK(contains(complaint({part("0/2"), part("1/3")}), "must be one of 2 parts, not of 3"));
  CHECK(contains(complaint({}), "(none)"));
}

TEST_CASE("what a part says of their number costs nothing until the others are there") {
  CHECK(contains(complaint({part("0/3"), part("2/3")}), "PART = 1/3: is missing"));
  const std::string many = complaint({part("0/100000000")});
  CHECK(contains(many, "1/100000000, 2/100000000"));
  CHECK(contains(many, "and 99999991 others"));
  CHECK(contains(complaint({part("18446744073709551614/18446744073709551615")}), "others: is missing"));
  for (const char* shard : {"", "1", "2/2", "0/0", "-1/2", "0/2x", "0/18446744073709551616"}) {
    CAPTURE(shard);
    CHECK(contains(complaint({part(shard)}), "must be I/N"));
  }
}

}  // namespace tilescope
