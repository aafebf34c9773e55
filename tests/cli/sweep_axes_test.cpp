// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/options/sweep_axes.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"

using namespace tilescope;
using tilescope::cli::SweepAxes;
using tilescope::cli::SweepPoint;

namespace {

std::vector<SweepPoint> points(const std::vector<std::string>& axes, const AttentionProblem& base = {}) {
  SweepAxes sweep;
  CLI::App app;
  sweep.add_to(app);
  std::vector<std::string> arguments;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {  // CLI11 takes them from the back
    arguments.push_back(*axis);
    arguments.push_back("--sweep");
  }
  app.parse(arguments);
  CHECK(sweep.given() == !axes.empty());
  return sweep.points(base);
}

}  // namespace

TEST_CASE("a sweep without axes is the problem itself") {
  const AttentionProblem base{.heads = 4, .heads_kv = 2, .seqlen_q = 7, .seqlen_k = 9};
  REQUIRE(points({}, base).size() == 1);
  CHECK(points({}, base)[0].problem == base);
}

TEST_CASE("a sweep of heads keeps one key/value head, and takes heads with their key/value heads") {
  const auto heads_kv = [](const std::string& sweep, const AttentionProblem& base) {
    std::vector<std::int64_t> all;
    for (const SweepPoint& point : points({sweep}, base)) all.push_back(point.problem.heads_kv);
    return all;
  };
  CHECK(heads_kv("heads=8,12,16", {.heads = 8, .heads_kv = 1}) == std::vector<std::int64_t>{1, 1, 1});
  CHECK(heads_kv("heads=8,16", {.heads = 8, .heads_kv = 2}) == std::vector<std::int64_t>{2, 4});
  CHECK(heads_kv("heads=8/1,8/2,16/16", {.heads = 4, .heads_kv = 4}) == std::vector<std::int64_t>{1, 2, 16});
  CHECK(heads_kv("heads=1,2", {.heads = 1, .heads_kv = 1}) == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("axes multiply, the last varying fastest") {
  const auto all = points({"head_dim=64,128", "seqlen=512..2048"});
  REQUIRE(all.size() == 6);
  for (std::size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].problem.head_dim == (i < 3 ? 64 : 128));
    CHECK(all[i].problem.seqlen_q == 512 << i % 3);
    CHECK(all[i].problem.seqlen_k == 512 << i % 3);
  }
}

TEST_CASE("tokens, hidden and group follow the other axes, whatever their order") {
  for (const auto& axes :
       {std::vector<std::string>{"tokens=4096", "hidden=1024", "group=8", "seqlen=1024", "head_dim=128"},
        {"seqlen=1024", "head_dim=128", "group=8", "hidden=1024", "tokens=4096"}}) {
    const auto all = points(axes);
    REQUIRE(all.size() == 1);
    const AttentionProblem& problem = all[0].problem;
    CHECK(problem.batch == 4);
    CHECK(problem.heads == 8);
    CHECK(problem.heads_kv == 1);
  }
  CHECK(points({"tokens=100", "seqlen=1000"})[0].problem.batch == 1);
}

TEST_CASE("pages are swept from none to many keys") {
  const auto all = points({"page_size=0,16,256"});
  REQUIRE(all.size() == 3);
  CHECK(all[0].problem.page_size == 0);
  CHECK(all[1].problem.page_size == 16);
  CHECK(all[2].problem.page_size == 256);
}

TEST_CASE("what a sweep sets of the kernel takes the place of the kernel's choice, and nothing else does") {
  ProgramOptions own = ProgramOptions::with_tile({128, 64});
  own.backward = BackwardOrder::fused;
  CHECK(points({"seqlen=64"})[0].apply_to(own) == own);
  const ProgramOptions set =
      points({"tile=32x16", "backward=split", "order=longest-first", "scan=sawtooth"})[0].apply_to(own);
  for (const PassOptions& pass : set.passes) CHECK(pass.tile == TileShape{32, 16});
  CHECK(set.backward == BackwardOrder::split);
  CHECK(set.order == TileOrder::longest_first);
  CHECK(set.scan == Scan::sawtooth);
}

TEST_CASE("axes and values that cannot be are refused") {
  for (const char* axis :
       {"seqlen", "seqln=1", "seqlen=", "seqlen=x", "seqlen=8..4", "seqlen=0", "tokens=0", "causal=2",
        "tile=64", "head_dim=600", "group=3", "dtype=fp4", "page_size=12", "seqlen=1..999999999999"}) {
    CAPTURE(axis);
    CHECK_THROWS_AS(points({axis}), BadInput);
  }
}

TEST_CASE("points that are no problem say why, beside others that are") {
  const auto all = points({"heads_kv=2,3,4"}, {.heads = 4, .heads_kv = 4});
  REQUIRE(all.size() == 3);
  CHECK((all[0].refusal == nullptr && all[2].refusal == nullptr));
  CHECK_THROWS_WITH_AS(std::rethrow_exception(all[1].refusal), "heads_kv = 3: must divide heads = 4",
                       BadInput);
}

TEST_CASE("a sweep has a limit, which is looked at before the problems are made") {
  std::string many = "1";
  for (int i = 2; i <= 200; ++i) many += "," + std::to_string(i);
  CHECK(points({"seqlen_q=" + many}).size() == 200);
  const std::vector<std::string> axes = {"seqlen_q=" + many, "seqlen_k=" + many, "batch=" + many,
                                         "heads=" + many};
  CHECK_THROWS_WITH_AS(points(axes), "sweep = 40000 problems: must be at most 10000: choose fewer values",
                       BadInput);
}
