// SPDX-License-Identifier: Apache-2.0
// The papers' printed counts against TileScope's closed forms, where both must say the same.
#include "analysis/model/validation/paper_counts.hpp"

#include <doctest/doctest.h>

#include "analysis/model/counts/closed_form.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kWidth = 4;  // every tensor in fp32, as the papers count one width

/// One head in fp32 whose length both sides of the tile divide.
struct Case {
  AttentionProblem problem;
  TileShape tile;
  PaperShape shape;
};

Case random_case(unsigned seed) {
  testing::ProblemGenerator random(seed);
  Case c;
  c.tile = random.tile(12);
  const int n = c.tile.block_m * c.tile.block_n * random.between(1, 3);
  c.problem.seqlen_q = c.problem.seqlen_k = n;
  c.problem.head_dim = random.between(1, 40);
  c.shape = {n, c.problem.head_dim, n / c.tile.block_m, n / c.tile.block_n};
  return c;
}

std::vector<TileProgram> programs(const Case& c, Algorithm algorithm, Direction direction) {
  ProgramOptions options = ProgramOptions::with_tile(c.tile);
  options.backward = BackwardOrder::fused;
  return build_programs(algorithm, direction, c.problem, options);
}

ElementCount elements(const std::vector<TileProgram>& passes) {
  ElementCount count;
  for (const TileProgram& pass : passes) {
    const ClosedFormBytes bytes = closed_form_bytes(pass);
    count.reads += bytes.sm_l2_read_bytes / kWidth;
    count.writes += bytes.sm_l2_write_bytes / kWidth;
  }
  return count;
}

ElementCount paper(const char* name, const Case& c) { return find_paper_count(name).count(c.shape); }

TEST_CASE("our closed forms are the papers' counts") {
  for (unsigned seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    const Case c = random_case(seed);
    const std::int64_t n = c.shape.seqlen, nd = n * c.shape.head_dim;
    const auto flash1 = programs(c, Algorithm::flash1, Direction::backward);
    const auto flash2 = programs(c, Algorithm::flash2, Direction::backward);

    CHECK(elements(programs(c, Algorithm::flash1, Direction::forward)) == paper("flash1-forward", c));
    CHECK(elements({flash1[0]}) == paper("flash1-backward", c));
    CHECK(elements(programs(c, Algorithm::flash2, Direction::forward)) == paper("flash2-forward", c));
    CHECK(elements({flash2[1]}) == paper("flash2-backward-atomic", c));

    // The printed Algorithm 2 also reads dQ at every step, where atomic adds do not.
    ElementCount all_steps = elements({flash2[0], flash2[1]});
    all_steps.reads += c.shape.kv_blocks * nd;
    CHECK(all_steps == paper("flash2-backward", c));

    // What eliding leaves out: the initialisation, and the first read of O, l and m.
    const ElementCount literal = paper("flash1-forward", c), elided = paper("flash1-forward-elided", c);
    CHECK(literal.total() - elided.total() == 2 * (nd + 2 * n));
  }
}

TEST_CASE("standard attention with one tile a head is the papers' ideal, with the LSE that we also write") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Case c = random_case(seed);
    c.tile = {static_cast<int>(c.shape.seqlen), static_cast<int>(c.shape.seqlen)};
    ElementCount forward = elements(programs(c, Algorithm::standard, Direction::forward));
    forward.writes -= c.shape.seqlen;
    CHECK(forward == paper("standard-forward", c));
    CHECK(elements(programs(c, Algorithm::standard, Direction::backward)) == paper("standard-backward", c));
  }
}

TEST_CASE("compulsory counts") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    const Case c = random_case(seed);
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const ReadWriteBytes bytes = compulsory_bytes(c.problem, direction);
      const ElementCount printed =
          paper(direction == Direction::forward ? "compulsory-forward" : "compulsory-backward", c);
      CHECK(bytes.read_bytes / kWidth == printed.reads);
      CHECK(bytes.write_bytes / kWidth == printed.writes);
    }
  }
}

TEST_CASE("compulsory bytes leave out rows that the mask hides, but no output") {
  AttentionProblem p;
  p.seqlen_q = 3;
  p.seqlen_k = 10;
  p.head_dim = 8;
  p.causal = true;
  p.window_left = 1;  // queries 0, 1, 2 see keys {6, 7}, {7, 8}, {8, 9}
  const ReadWriteBytes bytes = compulsory_bytes(p, Direction::forward);
  CHECK(bytes.read_bytes == (3 + 4 + 4) * 8 * 4);
  CHECK(bytes.write_bytes == 3 * 8 * 4 + 3 * 4);
}

TEST_CASE("the reconstruction of FlashAttention's Figure 2: 4.4 GB") {
  // B = 64, H = 16, N = 1024, d = 64, fp16, 256-row K/V blocks; O and initialisation elided, l and m
  // neglected.
  const double unit = 1024.0 * 64 * 2 * 64 * 16;
  const PaperShape shape{1024, 64, 4, 4};
  const double backward =
      static_cast<double>(find_paper_count("flash1-backward-elided").count(shape).total());
  CHECK(backward * 2 * 64 * 16 == doctest::Approx(20 * unit));
  const double forward = static_cast<double>(find_paper_count("flash1-forward-elided").count(shape).total());
  CHECK((forward + backward) * 2 * 64 * 16 / 1e9 == doctest::Approx(4.4).epsilon(0.02));
}

TEST_CASE("FLOPs: exact pairs, whole tiles and the papers' halving") {
  AttentionProblem p;
  p.batch = 2;
  p.heads = p.heads_kv = 3;
  p.seqlen_q = p.seqlen_k = 10;
  p.head_dim = 8;
  CHECK(paper_flops(p, Direction::forward) == 4 * 10 * 10 * 8 * 6);
  CHECK(useful_flops(p, Direction::forward) == paper_flops(p, Direction::forward));
  CHECK(paper_flops(p, Direction::backward) == 10 * 10 * 10 * 8 * 6);
  CHECK(useful_flops(p, Direction::backward) == paper_flops(p, Direction::backward));
  p.causal = true;
  CHECK(paper_flops(p, Direction::forward) == 2 * 10 * 10 * 8 * 6);
  CHECK(useful_flops(p, Direction::forward) == 4 * 55 * 8 * 6);
  const auto passes =
      build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({4, 4}));
  CHECK(useful_flops(passes[0]) == useful_flops(p, Direction::forward));
  CHECK(executed_flops(passes[0]) == 4 * 16 * 8 * 6 * (1 + 2 + 3));  // six of nine 4 x 4 tiles a head
}

TEST_CASE("counts that overflow are refused, not wrapped") {
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = kMaxSeqlen;
  p.head_dim = 256;
  CHECK_THROWS_AS(paper_flops(p, Direction::backward), BadInput);
  CHECK_THROWS_AS(useful_flops(p, Direction::backward), BadInput);
  const auto passes =
      build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({1, 1}));
  CHECK_THROWS_AS(closed_form_bytes(passes[0]), BadInput);
  CHECK_THROWS_AS(executed_flops(passes[0]), BadInput);
}

TEST_CASE("an unknown count is refused by name") { CHECK_THROWS_AS(find_paper_count("flash9"), BadInput); }

}  // namespace
}  // namespace tilescope
