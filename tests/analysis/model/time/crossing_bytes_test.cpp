// SPDX-License-Identifier: Apache-2.0
#include "analysis/model/time/crossing_bytes.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "gpu/registry/kernel_registry.hpp"

namespace tilescope {
namespace {

AttentionProblem one_head(std::int64_t head_dim, std::int64_t seqlen) {
  return {.batch = 1,
          .heads = 1,
          .heads_kv = 1,
          .seqlen_q = seqlen,
          .seqlen_k = seqlen,
          .head_dim = head_dim,
          .dtype = ElementType::fp16};
}

TileProgram forward_of(const char* kernel, const AttentionProblem& problem) {
  const Kernel& of = find_kernel(kernel);
  return of.programs(Direction::forward, problem, of.default_options(problem)).front();
}

double loaded(const TileProgram& program, const std::vector<Operand>& operands) {
  return bytes_of(program, operands).loaded;
}

}  // namespace

TEST_CASE("rows beyond the matrix do not cross, by hand") {
  // One tile of 128 x 64 of flash2-mma has 40 of its rows of Q, of K and of V.
  const TileProgram cut = forward_of("gpu:flash2-mma", one_head(128, 40));
  const TileProgram full = forward_of("gpu:flash2-mma", one_head(128, 128));
  REQUIRE(cut.tile == TileShape{128, 64});
  CHECK(loaded(cut, cut.prologue) == doctest::Approx(40 * 128 * 2));
  CHECK(loaded(full, full.prologue) == doctest::Approx(128 * 128 * 2));
  double of_step = 0, of_full = 0;
  for (const auto& phase : cut.phases) of_step += loaded(cut, phase);
  for (const auto& phase : full.phases) of_full += loaded(full, phase);
  CHECK(of_step == doctest::Approx(2 * 40 * 128 * 2));
  CHECK(of_full == doctest::Approx(2 * 64 * 128 * 2));
  // 200 rows are two tiles of queries and four of keys: 200 of 256 either way.
  const TileProgram ragged = forward_of("gpu:flash2-mma", one_head(128, 200));
  CHECK(loaded(ragged, ragged.prologue) == doctest::Approx(200.0 / 256 * 128 * 128 * 2));
  // Each row is stored, with its LSE.
  CHECK(bytes_of(ragged, ragged.epilogue).stored == doctest::Approx(200.0 / 256 * 128 * (128 * 2 + 4)));
}

TEST_CASE("two SMs ask together for the lines that their rows have whole, by hand") {
  // All CTAs go through the same rows: half of their whole lines are looked up. Rows of 192 bytes begin at a
  // line or in its middle: one whole line of each 192 bytes. Of 160: at 0, 32, 64 or 96, one of four has a
  // whole line in front and one behind. Of 384: three lines.
  const auto share = [](const char* kernel, std::int64_t head_dim) {
    return looked_up_share(forward_of(kernel, one_head(head_dim, 32768)), 132);
  };
  CHECK(share("gpu:flash3", 128) == doctest::Approx(0.5));
  CHECK(share("gpu:flash3", 192) == doctest::Approx(0.5));
  CHECK(share("gpu:flash3", 96) == doctest::Approx(1 - 0.5 * 128 / 192));
  CHECK(share("gpu:flash3", 80) == doctest::Approx(1 - 0.5 * 64 / 160));
  // Rows of 144 bytes: of 8, that begin at 0, 16 ... 112, the first and the last have a line. They begin
  // inside sectors: 10.67 clocks of all SMs for 304 bytes, of which whole lines come at 36.15 a clock.
  const double of_72 = 1 - 0.5 * 2 * 128 / (8 * 144);
  CHECK(share("gpu:flash2-mma", 72) == doctest::Approx(of_72));
  CHECK(share("gpu:flash3", 72) == doctest::Approx(of_72 * 10.67 * 36.15 / 304));
}

TEST_CASE("streams of their own are looked up whole") {
  AttentionProblem problem = one_head(128, 128);
  problem.heads = problem.heads_kv = 132;
  CHECK(looked_up_share(forward_of("gpu:flash3", problem), 132) > 0.99);
}

}  // namespace tilescope
