// SPDX-License-Identifier: Apache-2.0
#include "analysis/records/tile_table.hpp"

#include <doctest/doctest.h>

#include <cstdlib>

#include "common/errors.hpp"

namespace tilescope {
namespace {

TileChoice choice_of(PassName pass, TileShape tile) {
  return {.device = "Device A",
          .kernel = "gpu:some",
          .pass = pass,
          .head_dim = 128,
          .dtype = ElementType::bf16,
          .causal = true,
          .choice = {tile},
          .tried = {{{{128, 64}}, 2e-3}, {{tile, {8, 3}}, 1e-3}},
          .problem = "B1",
          .when = "2025-01-31T23:59:59Z",
          .git_sha = "abc"};
}

std::string damaged(const std::string& from, const std::string& to) {
  TileTable table;
  table.put(choice_of(PassName::dq, {64, 32}));
  std::string text = to_json_text(table);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Sets a variable of the environment for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST_CASE("a table of tiles reads back, and a new choice replaces that of the same key") {
  TileTable table;
  table.put(choice_of(PassName::forward, {64, 64}));
  table.put(choice_of(PassName::dq, {64, 32}));
  table.put(choice_of(PassName::forward, {128, 32}));
  REQUIRE(table.choices().size() == 2);
  CHECK(table.choices()[0].choice.tile == TileShape{128, 32});
  CHECK(parse_tile_table("text", to_json_text(table)).choices() == table.choices());
  CHECK(read_tile_table("/no/such/file.json").choices().empty());
}

TEST_CASE("a choice holds for its device, kernel, pass, head_dim, element type and mask alone") {
  TileTable table;
  table.put(choice_of(PassName::forward, {64, 64}));
  const ProgramOptions own = ProgramOptions::with_tile({128, 64});
  const AttentionProblem problem{.head_dim = 128, .dtype = ElementType::bf16, .causal = true};
  const auto legal = [](PassName) { return std::vector<PassChoice>{{{128, 64}}, {{64, 64}}}; };
  const auto applied = [&](const AttentionProblem& p, const char* device = "Device A",
                           const char* kernel = "gpu:some") {
    return table.apply(kernel, p, device, own, legal);
  };
  ProgramOptions tuned = own;
  tuned[PassName::forward].tile = {64, 64};
  CHECK(applied(problem) == tuned);
  CHECK(applied(problem, "Device B") == own);
  CHECK(applied(problem, "Device A", "gpu:other") == own);
  AttentionProblem other = problem;
  other.head_dim = 64;
  CHECK(applied(other) == own);
  other = problem;
  other.dtype = ElementType::fp16;
  CHECK(applied(other) == own);
  other = problem;
  other.causal = false;
  CHECK(applied(other) == own);
  other = problem;
  other.seqlen_q = other.seqlen_k = 777;  // a choice for all lengths
  CHECK(applied(other) == tuned);
}

TEST_CASE("a choice is that of the bucket of lengths, else of the nearest, with its warps and stages") {
  TileTable table;
  const auto put = [&](std::int64_t seqlen, PassLaunch launch) {
    TileChoice choice = choice_of(PassName::forward, {64, 64});
    choice.seqlen = seqlen;
    choice.choice.launch = launch;
    table.put(choice);
  };
  put(0, {});
  put(512, {.warps = 4});
  put(4096, {.stages = 3});
  REQUIRE(table.choices().size() == 3);
  CHECK(parse_tile_table("text", to_json_text(table)).choices() == table.choices());
  const auto launch_at = [&](std::int64_t seqlen) {
    const AttentionProblem problem{
        .seqlen_q = 1, .seqlen_k = seqlen, .head_dim = 128, .dtype = ElementType::bf16, .causal = true};
    const auto legal = [](PassName) {
      return std::vector<PassChoice>{{{64, 64}}, {{64, 64}, {.warps = 4}}, {{64, 64}, {.stages = 3}}};
    };
    return table.apply("gpu:some", problem, "Device A", {}, legal)[PassName::forward].launch;
  };
  CHECK(launch_at(300) == PassLaunch{.warps = 4});
  CHECK(launch_at(512) == PassLaunch{.warps = 4});
  CHECK(launch_at(1) == PassLaunch{.warps = 4});
  CHECK(launch_at(2049) == PassLaunch{.stages = 3});
  CHECK(launch_at(100000) == PassLaunch{.stages = 3});
  CHECK_THROWS_WITH_AS(parse_tile_table("t.json", damaged("\"warps\": 8", "\"warps\": 33")),
                       doctest::Contains("warps"), BadInput);
}

TEST_CASE("a tile that the kernel no longer has is passed over") {
  TileTable table;
  table.put(choice_of(PassName::forward, {64, 64}));
  const ProgramOptions own = ProgramOptions::with_tile({128, 64});
  const AttentionProblem problem{.head_dim = 128, .dtype = ElementType::bf16, .causal = true};
  CHECK(table.apply("gpu:some", problem, "Device A", own, [](PassName) {
    return std::vector<PassChoice>{{{128, 64}}};
  }) == own);
}

TEST_CASE("an older table's backward tile is that of the pass over kv tiles in either order") {
  const TileTable table = parse_tile_table("old.json", damaged("\"dq\"", "\"backward\""));
  REQUIRE(table.choices().size() == 2);
  CHECK(table.choices()[0].pass == PassName::dkdvdq);
  CHECK(table.choices()[1].pass == PassName::dkdv);
  CHECK(table.choices()[1].choice.tile == TileShape{64, 32});
}

TEST_CASE("a damaged table is refused by file, field and value") {
  CHECK_THROWS_WITH_AS(parse_tile_table("t.json", damaged("tiles/1", "tiles/9")),
                       doctest::Contains("tilescope.tiles/9"), BadInput);
  CHECK_THROWS_WITH_AS(parse_tile_table("t.json", damaged("\"dq\"", "\"dvv\"")), doctest::Contains("t.json"),
                       BadInput);
  CHECK_THROWS_AS(parse_tile_table("t.json", damaged("\"bf16\"", "\"bf17\"")), BadInput);
  CHECK_THROWS_AS(parse_tile_table("t.json", damaged("\"block_m\": 64", "\"block_m\": 0")), BadInput);
  CHECK_THROWS_AS(parse_tile_table("t.json", damaged("\"tried\"", "\"tired\"")), BadInput);
  CHECK_THROWS_AS(parse_tile_table("t.json", "{"), BadInput);
}

TEST_CASE("the environment says where the table lies and whether it is read") {
  {
    const Variable cache("XDG_CACHE_HOME", "/somewhere");
    CHECK(tile_table_path() == "/somewhere/tilescope/tiles.json");
    const Variable named("TILESCOPE_TILES", "/else/t.json");
    CHECK(tile_table_path() == "/else/t.json");
  }
  CHECK_FALSE(autotune_disabled());
  for (const auto& [value, disabled] : {std::pair{"1", true}, {"0", false}, {"", false}}) {
    const Variable variable("TILESCOPE_DISABLE_AUTOTUNE", value);
    CHECK(autotune_disabled() == disabled);
  }
  const Variable variable("TILESCOPE_DISABLE_AUTOTUNE", "yes");
  CHECK_THROWS_WITH_AS(autotune_disabled(), doctest::Contains("yes"), BadInput);
}

}  // namespace
}  // namespace tilescope
