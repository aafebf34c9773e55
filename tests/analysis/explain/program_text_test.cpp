// SPDX-License-Identifier: Apache-2.0
// Tile programs as texts: the committed ones are the papers' programs to the byte, and what is not consistent
// is refused with its line.
#include "analysis/explain/program_text.hpp"

#include <doctest/doctest.h>

#include "analysis/records/files/text_file.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "tests/paths.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

ProgramText example(const std::string& name, TileShape tile) {
  std::string text = read_text_file(TILESCOPE_SOURCE_DIR "/examples/programs/" + name + ".tiles");
  const std::string own = "tile 128 x 64";
  text.replace(text.find(own), own.size(),
               "tile " + std::to_string(tile.block_m) + " x " + std::to_string(tile.block_n));
  return parse_program_text(name, text);
}

std::vector<TileAccess> accesses(const TileProgram& program) {
  std::vector<TileAccess> all;
  for_each_access(program, [&all](const TileAccess& access) { all.push_back(access); });
  return all;
}

std::string refusal(const std::string& text) {
  AttentionProblem problem;
  problem.heads = problem.heads_kv = 2;
  problem.seqlen_q = problem.seqlen_k = 200;
  try {
    const ProgramText program = parse_program_text("mine.tiles", text);
    program.programs(program.passes.front().direction, problem);
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

std::string forward(const std::string& body) {
  return "tile 64 x 64\nforward\n  pass forward\n    cta m h\n" + body;
}

}  // namespace

TEST_CASE("the committed texts are the papers' programs, access by access") {
  struct Example {
    const char* name;
    Algorithm algorithm;
    BackwardOrder backward;
  };
  const Example examples[] = {{"standard", Algorithm::standard, BackwardOrder::split},
                              {"flash1", Algorithm::flash1, BackwardOrder::split},
                              {"flash2", Algorithm::flash2, BackwardOrder::split},
                              {"flash2-fused", Algorithm::flash2, BackwardOrder::fused},
                              {"flash2-q-outer", Algorithm::flash2, BackwardOrder::q_outer}};
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile();
    AttentionProblem problem = random.problem(tile);
    problem.dtype = ElementType::fp16;
    if (random.chance(0.3)) problem = random.padded(problem);
    ProgramOptions options = ProgramOptions::with_tile(tile);
    for (const Example& example_of : examples) {
      CAPTURE(example_of.name);
      const ProgramText text = example(example_of.name, tile);
      options.backward = example_of.backward;
      for (const Direction direction : {Direction::forward, Direction::backward}) {
        const auto expected = build_programs(example_of.algorithm, direction, problem, options);
        const auto programs = text.programs(direction, problem);
        REQUIRE(programs.size() == expected.size());
        for (std::size_t i = 0; i < programs.size(); ++i) {
          CAPTURE(to_string(expected[i].name));
          CHECK(programs[i].name == expected[i].name);
          CHECK(programs[i].products.count() == expected[i].products.count());
          CHECK(programs[i].num_ctas() == expected[i].num_ctas());
          CHECK((accesses(programs[i]) == accesses(expected[i])));
        }
      }
    }
  }
}

TEST_CASE("orders, scans and boxes of a text reach its programs") {
  const ProgramText text = parse_program_text(
      "mine.tiles",
      forward(
          "      load q\n      for n\n        load k[n], v\n      store out, lse\n    order longest-first\n"
          "    scan descending\n    boxes k 64 32\n    tile 32 x 64\n    products 2\n"));
  AttentionProblem problem;
  problem.seqlen_q = problem.seqlen_k = 100;
  const TileProgram program = text.programs(Direction::forward, problem).front();
  CHECK(program.grid.order == TileOrder::longest_first);
  CHECK(program.scan == Scan::descending);
  CHECK(program.tile == TileShape{32, 64});
  CHECK(program.boxes == std::vector<Boxes>{{TensorName::k, 64, 32}});
}

TEST_CASE("what is not consistent is refused with line and reason") {
  struct Refused {
    std::string text, line, reason;
  };
  const std::string good = "      load q\n      for n\n        load k, v\n      store out, lse\n";
  CHECK(refusal(forward(good)).empty());
  for (const Refused& refused : {
           Refused{forward("      load q\n      for n\n        load k, v\n      store lse\n"), "line 3",
                   "no tile of out is ever stored"},
           Refused{forward("      load q\n      for n\n        load k[n+1], v\n      store out\n"), "line 7",
                   "beyond the tensor"},
           Refused{forward("      load q, k\n      store out\n"), "line 5", "k is cut by n"},
           Refused{forward("      load q, dq_accum\n      store out\n"), "line 5",
                   "nothing before it stores"},
           Refused{forward("      for n\n        load k\n        reduce out_accum\n      store out\n"),
                   "line 7", "nothing before it stores"},
           Refused{forward("      load queries\n      store out\n"), "line 5", "queries is no tensor"},
           Refused{forward("      load q\n      for m\n        load k\n      store out\n"), "line 6",
                   "`for n`"},
           Refused{forward("      fetch q\n      store out\n"), "line 5", "load, store or reduce"},
           Refused{forward("      load q\n      for n\n      store out\n"), "line 6", "must hold loads"},
           Refused{forward("      store out\n      for n\n        load k\n"), "line 6", "no loop may follow"},
           Refused{"tile 64 x 0\n" + forward(good), "line 1", "1 ... 4096"},
           Refused{"forward\n  pass forward\n    cta m h\n" + good, "line 2", "must have a tile"},
           Refused{"tile 64 x 64\nforward\n  pass sideways\n    cta m h\n" + good, "line 3",
                   "must be forward, delta, dkdv"},
           Refused{"tile 64 x 64\nforward\n  pass forward\n    cta k h\n" + good, "line 4", "a CTA owns"},
           Refused{"tile 64 x 64\nforward\n", "line 2", "must hold a pass"},
           Refused{"# nothing\n", "mine.tiles", "must hold `forward`"},
           Refused{"tile 64 x 64\nbackward\n  pass dkdv\n    cta n hkv\n      load k, v\n      for m\n"
                   "        load q\n      store dk, dv\n",
                   "line 6", "`for h`"},
           Refused{"tile 64 x 64\nbackward\n  pass dkdv\n    cta n hkv\n      load k, v\n      for h\n"
                   "        for m\n          load q, dout\n      store dk, dv\n",
                   "line 3", "no tile of dq is ever stored"},
       }) {
    CAPTURE(refused.text);
    const std::string said = refusal(refused.text);
    CAPTURE(said);
    CHECK(said.find("mine.tiles") != std::string::npos);
    CHECK(said.find(refused.line) != std::string::npos);
    CHECK(said.find(refused.reason) != std::string::npos);
  }
}

TEST_CASE("tiles that a mask hides are stored by a loop over every tile, and not by one over the visible") {
  AttentionProblem problem;
  problem.seqlen_q = problem.seqlen_k = 256;
  problem.causal = true;
  const auto stores_in = [&](const char* loop) {
    const std::string text =
        std::string("tile 64 x 64\nforward\n  pass scores\n    cta m h\n      load q\n      ") + loop +
        "\n        load k\n        store scores\n      store out\n";
    return parse_program_text("mine.tiles", text).programs(Direction::forward, problem).front();
  };
  CHECK(accesses(stores_in("for n")).size() < accesses(stores_in("for all n")).size());
}

}  // namespace tilescope
