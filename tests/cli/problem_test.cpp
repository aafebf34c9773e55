// SPDX-License-Identifier: Apache-2.0
// The options that name a problem: what they mean together, and every bad value refused by field and value.
#include <doctest/doctest.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>

#include "analysis/cli/options/problem_options.hpp"

namespace tilescope::cli {
namespace {

struct ParsedProblem {
  AttentionProblem problem;
  std::vector<Direction> directions;
  bool given = false;
};

ParsedProblem parse_problem(std::vector<std::string> words) {
  CLI::App app;
  ProblemOptions options;
  options.add_to(app);
  std::reverse(words.begin(), words.end());  // CLI11 takes them from the back
  app.parse(words);
  return {options.problem(), options.directions(), options.given()};
}

}  // namespace

TEST_CASE("heads_kv follows heads, seqlen_k follows seqlen_q, unless given") {
  CHECK(parse_problem({"--heads", "6"}).problem.heads_kv == 6);
  CHECK(parse_problem({"--heads", "6", "--heads-kv", "2"}).problem.heads_kv == 2);
  CHECK(parse_problem({"--heads-kv", "2"}).problem.heads == 8);
  const AttentionProblem described = parse_problem({"--heads", "16/2"}).problem;  // as "H16/2" is printed
  CHECK(described.heads == 16);
  CHECK(described.heads_kv == 2);
  const auto of_preset = [](const char* heads) {  // of 32/8
    return parse_problem({"--preset", "llama3-8b", "--heads", heads}).problem.heads_kv;
  };
  CHECK(of_preset("16") == 4);
  CHECK(of_preset("6") == 6);
  CHECK(parse_problem({"--preset", "llama3-8b", "--heads", "16", "--heads-kv", "8"}).problem.heads_kv == 8);
  CHECK(parse_problem({"--seqlen-q", "100"}).problem.seqlen_k == 100);
  CHECK(parse_problem({"--seqlen-q", "100", "--seqlen-k", "7"}).problem.seqlen_k == 7);
  CHECK(parse_problem({"--seqlen-k", "7"}).problem.seqlen_q == 1024);
  const AttentionProblem square = parse_problem({"--seqlen", "33"}).problem;
  CHECK(square.seqlen_q == 33);
  CHECK(square.seqlen_k == 33);
}

TEST_CASE("the lengths of the batch entries tell how many there are") {
  const AttentionProblem padded = parse_problem({"--key-lengths", "1k,17,0"}).problem;
  CHECK(padded.key_lengths == std::vector<std::int64_t>{1024, 17, 0});
  CHECK(padded.batch == 3);
  CHECK(describe(padded) == "B3 H8 N1024 D64 fp32 keys 1024,17,0");
  CHECK_THROWS_WITH(parse_problem({"--key-lengths", "5,6", "--batch", "3"}),
                    "key_lengths = 2 lengths: must be one a batch entry, batch = 3");
  CHECK_THROWS_WITH(parse_problem({"--key-lengths", "2000"}),
                    "key_lengths = 2000: must lie in 0 ... seqlen_k = 1024");
  CHECK_THROWS_AS(parse_problem({"--key-lengths", "5,,6"}), BadInput);
}

TEST_CASE("a mask stands beside causal and window, and documents tell how long the sequence is") {
  const AttentionProblem packed = parse_problem({"--causal", "--mask", "documents:1k,0,57"}).problem;
  CHECK(packed.mask == MaskRule{MaskKind::documents, {1024, 0, 57}});
  CHECK(packed.seqlen_q == 1081);
  CHECK(packed.seqlen_k == 1081);
  CHECK(describe(packed) == "B1 H8 N1081 D64 fp32 causal mask documents:1024,0,57");
  const AttentionProblem sink = parse_problem({"--window", "99,0", "--mask", "sink:4"}).problem;
  CHECK(to_string(sink.mask) == "sink:4");
  CHECK(sink.seqlen_k == 1024);
  const AttentionProblem blocks = parse_problem({"--seqlen", "128", "--mask", "blocks:32;0;;1,2;3"}).problem;
  CHECK(blocks.mask.numbers == std::vector<std::int64_t>{32, -1, 0, -1, -1, 1, 2, -1, 3});
  CHECK(to_string(blocks.mask) == "blocks:32;0;;1,2;3");
  CHECK(to_string(parse_mask("mask", "tree:0,1,1")) == "tree:0,1,1");
  CHECK(describe(MaskRule{MaskKind::documents, std::vector<std::int64_t>(9, 1)}) ==
        "documents:1,1,1,1,1,1,1,1,...");
}

TEST_CASE("descales are numbers, by chance or of the data, of heads or of blocks") {
  const AttentionProblem problem =
      parse_problem({"--dtype", "fp8e5m2", "--descale-q", "0.5", "--descale-k", "random", "--descale-v",
                     "data", "--descale-block", "128x96"})
          .problem;
  CHECK(problem.descales ==
        Descales{{.value = 0.5}, {Descale::From::random}, {Descale::From::data}, {128, 96}});
  CHECK(describe(problem) == "B1 H8 N1024 D64 fp8e5m2 descales q=0.5 k=random v=data of 128x96");
}

TEST_CASE("every problem option reaches its field") {
  const AttentionProblem expected{.batch = 2,
                                  .heads = 4,
                                  .heads_kv = 2,
                                  .seqlen_q = 10,
                                  .seqlen_k = 12,
                                  .head_dim = 40,
                                  .dtype = ElementType::bf16,
                                  .causal = true,
                                  .window_left = 5,
                                  .window_right = -1,
                                  .softmax_scale = -0.25,
                                  .dropout = 0.5,
                                  .seed = 18446744073709551615u,
                                  .score_mods = {.softcap = 50, .alibi = true, .learned_sink = true},
                                  .head_dim_v = 24,
                                  .page_size = 32};
  const ParsedProblem parsed =
      parse_problem({"--batch",      "2",          "--heads",     "4",
                     "--heads-kv=2", "--seqlen-q", "10",          "--seqlen-k",
                     "12",           "--head-dim", "40",          "--dtype",
                     "bf16",         "--causal",   "--window",    "5,-1",
                     "--scale",      "-0.25",      "--page-size", "32",
                     "--dropout",    "0.5",        "--seed",      "18446744073709551615",
                     "--softcap",    "50",         "--alibi",     "--learned-sink",
                     "--head-dim-v", "24",         "--pass",      "fwd+bwd"});
  CHECK(parsed.problem == expected);
  CHECK(parsed.directions == std::vector{Direction::forward, Direction::backward});
  CHECK(parsed.given);
}

/// What is said of a preset that is not known.
static std::string unknown_preset(const char* name) {
  try {
    parse_problem({"--preset", name});
  } catch (const BadInput& error) {
    return error.what();
  }
  return "";
}

TEST_CASE("a preset is a starting point") {
  CHECK_FALSE(parse_problem({}).given);
  CHECK(parse_problem({}).directions == std::vector{Direction::forward});
  CHECK(parse_problem({"--pass", "bwd"}).directions == std::vector{Direction::backward});
  for (const Preset& preset : presets()) {
    CHECK(parse_problem({"--preset", std::string(preset.name)}).problem == preset.problem);
  }
  CHECK_FALSE(parse_problem({"--preset", "gemma2-9b", "--softcap", "0"}).problem.score_mods.any());
  CHECK_FALSE(parse_problem({"--preset", "streaming-llm", "--mask", "none"}).problem.mask.any());
  CHECK(parse_problem({"--preset", "llama"}).problem == find_preset("llama3-8b").problem);
  const std::string several = unknown_preset("1");
  CHECK(several.find("gpt2") == std::string::npos);
  CHECK(several.find("fa2-16k, long-128k") != std::string::npos);
  CHECK(unknown_preset("lama3-8c").find("did you mean llama3-8b") != std::string::npos);
  AttentionProblem expected = find_preset("llama3-8b").problem;
  expected.batch = 3;
  CHECK(parse_problem({"--batch", "3", "--preset", "llama3-8b"}).problem == expected);
}

TEST_CASE("bad problem options are refused by field, value and what is allowed") {
  struct Bad {
    std::vector<std::string> words;
    const char *field, *value, *allowed;
  };
  const char* const too_long = "99999999999999999999";
  const Bad cases[] = {
      {{"--batch", "0"}, "batch", "0", "at least 1"},
      {{"--batch", "-1"}, "batch", "-1", "at least 1"},
      {{"--batch", "two"}, "batch", "two", "integer"},
      {{"--batch", "1e3"}, "batch", "1e3", "integer"},
      {{"--batch", "1 "}, "batch", "1 ", "integer"},
      {{"--batch", ""}, "batch", "''", "integer"},
      {{"--batch", too_long}, "batch", too_long, "integer"},
      {{"--heads", "8/3"}, "heads_kv", "3", "heads = 8"},
      {{"--heads", "8/"}, "heads", "", "integer"},
      {{"--heads", "0"}, "heads", "0", "at least 1"},
      {{"--heads", "-8"}, "heads", "-8", "at least 1"},
      {{"--heads-kv", "0"}, "heads_kv", "0", "at least 1"},
      {{"--heads", "8", "--heads-kv", "3"}, "heads_kv", "3", "heads = 8"},
      {{"--heads", "2", "--heads-kv", "4"}, "heads_kv", "4", "heads = 2"},
      {{"--seqlen", "0"}, "seqlen_q", "0", "1 ... 268435456"},
      {{"--seqlen-q", "-5"}, "seqlen_q", "-5", "1 ... 268435456"},
      {{"--seqlen-k", "0"}, "seqlen_k", "0", "1 ... 268435456"},
      {{"--seqlen", "268435457"}, "seqlen_q", "268435457", "1 ... 268435456"},
      {{"--seqlen", "5", "--seqlen-k", "6"}, "seqlen", "5", "--seqlen-k"},
      {{"--head-dim", "0"}, "head_dim", "0", "1 ... 576"},
      {{"--head-dim", "577"}, "head_dim", "577", "1 ... 576"},
      {{"--dtype", "fp23"}, "dtype", "fp23", "fp32, fp16"},
      {{"--window", "5"}, "window", "5", "LEFT,RIGHT"},
      {{"--window", "5,x"}, "window", "5,x", "LEFT,RIGHT"},
      {{"--window", "-2,0"}, "window", "-2", "-1"},
      {{"--scale", "big"}, "scale", "big", "number"},
      {{"--scale", "nan"}, "scale", "nan", "finite"},
      {{"--scale", "inf"}, "scale", "inf", "finite"},
      {{"--dropout", "1"}, "dropout", "1", "[0, 1)"},
      {{"--dropout", "-0.1"}, "dropout", "-0.1", "[0, 1)"},
      {{"--dropout", "nan"}, "dropout", "nan", "[0, 1)"},
      {{"--seed", "-1"}, "seed", "-1", "2^64"},
      {{"--seed", "18446744073709551616"}, "seed", "18446744073709551616", "2^64"},
      {{"--preset", "llama3-9b"}, "preset", "llama3-9b", "did you mean llama3-8b"},
      {{"--pass", "both"}, "pass", "both", "fwd+bwd"},
      {{"--batch", "2000000", "--heads", "2000000"}, "batch * heads", "2000000 * 2000000", "2147483647"},
      {{"--batch", "4611686018427387904", "--heads", "4"},
       "batch * heads",
       "4611686018427387904",
       "2147483647"},
      {{"--batch", "100000", "--seqlen", "200000000"},
       "seqlen_q",
       "200000000",
       "too large: its bytes are 2^63"},
  };
  for (const Bad& bad : cases) {
    std::string message;
    try {
      parse_problem(bad.words);
    } catch (const BadInput& error) {
      message = error.what();
    }
    std::string line;
    for (const std::string& word : bad.words) line += word + " ";
    CAPTURE(line);
    CAPTURE(message);
    for (const char* part : {bad.field, bad.value, bad.allowed}) {
      CAPTURE(part);
      CHECK(message.find(part) != std::string::npos);
    }
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("a scale by which every score overflows is refused") {
  CHECK(parse_problem({"--scale", "1e30"}).problem.softmax_scale == 1e30);
  for (const char* scale : {"1e308", "-1e31"}) CHECK_THROWS_AS(parse_problem({"--scale", scale}), BadInput);
}

}  // namespace tilescope::cli
