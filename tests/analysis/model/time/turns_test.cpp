// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/turns.hpp"

#include <doctest/doctest.h>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

/// The ordered pass over tiles of 64 x 64, one query head a key/value head.
/// @param slots  whether each kv tile has a slot of dQ; else its sums are too many bytes for that
TileProgram ordered_pass(std::int64_t queries, std::int64_t keys, bool slots, int query_splits = 1) {
  const AttentionProblem problem{.batch = 1,
                                 .heads = 1,
                                 .heads_kv = 1,
                                 .seqlen_q = queries,
                                 .seqlen_k = keys,
                                 .head_dim = 64,
                                 .dtype = ElementType::fp16};
  const Kernel& kernel = find_kernel("cpu:flash2");
  ProgramOptions options = kernel.default_options(problem);
  options.set_tile(Direction::backward, {64, 64});
  options.backward = BackwardOrder::ordered;
  options.set_query_splits(query_splits);
  for (TileProgram& program : kernel.programs(Direction::backward, problem, options)) {
    if (program.name != PassName::dkdvdq) continue;
    if (!slots) program.problem.head_dim = 1 << 22;
    return program;
  }
  FAIL("has no such pass");
  return {};
}

CtaClocks clocks() {
  CtaClocks clocks;
  clocks.begin = 1;
  clocks.between = 10;
  clocks.end = 6;
  clocks.step.out = 2;
  clocks.seen = 3;
  return clocks;
}

}  // namespace

TEST_CASE("kv tiles add to one q tile after each other, by hand") {
  const TileProgram pass = ordered_pass(64, 3 * 64, false);
  REQUIRE(pass.num_ctas() == 3);
  CHECK(end_in_turn(pass, 1, clocks()) == 3 * (1 + 10 + 2 + 6));  // nobody to wait for
  CHECK(end_in_turn(pass, 3, clocks()) == 1 + 10 + 2 + 2 * (3 + 2) + 6);
}

TEST_CASE("over several q tiles a wait is made once, and sending hides behind computing") {
  // The first adds at 11, 21, 31 and has sent at 13, 23, 33; the second waits for 16, and from then on for
  // nobody.
  CHECK(end_in_turn(ordered_pass(3 * 64, 2 * 64, false), 2, clocks()) == 33 + 3 + 2 + 6);
  CtaClocks slow = clocks();
  slow.step.out = 20;  // longer than a step: the next one's sums have no room until then
  CHECK(end_in_turn(ordered_pass(3 * 64, 64, false), 1, slow) == 1 + 10 + 3 * 20 + 6);
}

TEST_CASE("nobody waits where kv tiles have slots of dQ, nor CTAs that share a kv tile") {
  CHECK(end_in_turn(ordered_pass(64, 3 * 64, true), 3, clocks()) == 1 + 10 + 2 + 6);
  const TileProgram shared = ordered_pass(2 * 64, 64, true, 2);
  REQUIRE(shared.num_ctas() == 2);
  CHECK(end_in_turn(shared, 2, clocks()) == 1 + 10 + 2 + 6);
}

}  // namespace tilescope
