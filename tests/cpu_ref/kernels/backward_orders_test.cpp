// SPDX-License-Identifier: Apache-2.0
// Backward orders that sum in memory: the same passes and bits, and CTAs that share kv tiles.
#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"

namespace tilescope {
namespace {

/// Runs two orders of cpu:flash2's backward pass and holds bits, passes and tiles of one to the other's.
void check_same_as(BackwardOrder order, BackwardOrder usual, bool TileProgram::*mark,
                   std::size_t first_marked, std::size_t last_marked) {
  const AttentionProblem p{
      .heads = 4, .heads_kv = 2, .seqlen_q = 70, .seqlen_k = 90, .head_dim = 24, .causal = true};
  ProgramOptions plain_options = ProgramOptions::with_tile({16, 32}), options = plain_options;
  plain_options.backward = usual;
  options.backward = order;
  const Kernel& kernel = cpu_kernels().back();
  const auto marked = kernel.programs(Direction::backward, p, options);
  const auto plain = kernel.programs(Direction::backward, p, plain_options);
  REQUIRE(marked.size() == 3);
  REQUIRE(plain.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(marked[i].*mark == (i >= first_marked && i <= last_marked));
    CHECK_FALSE(plain[i].*mark);
    CHECK(marked[i].name == plain[i].name);
    CHECK(marked[i].tile == plain[i].tile);
  }
  TensorSet expected(p), tensors(p);
  for (TensorSet* set : {&expected, &tensors}) {
    fill_random_inputs(*set, Direction::backward);
    kernel.run(plain_options, Direction::forward, *set, nullptr);
    kernel.run(set == &tensors ? options : plain_options, Direction::backward, *set, nullptr);
  }
  for (TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv}) {
    CHECK(std::memcmp(tensors[name].data(), expected[name].data(),
                      static_cast<std::size_t>(expected[name].bytes())) == 0);
  }
}
TEST_CASE("the single-launch order has the passes and the bits of the split one, two of them in one launch") {
  check_same_as(BackwardOrder::single_launch, BackwardOrder::split, &TileProgram::single_launch, 1, 2);
}
TEST_CASE("the ordered order has the passes and the bits of the fused one, which a CPU orders as well") {
  check_same_as(BackwardOrder::ordered, BackwardOrder::fused, &TileProgram::ordered, 1, 1);
}

/// Two key/value heads, ragged and padded; some queries see no key.
AttentionProblem problem_of_unequal_rows(std::int64_t heads) {
  return {.batch = 2,
          .heads = heads,
          .heads_kv = 2,
          .seqlen_q = 90,
          .seqlen_k = 50,
          .head_dim = 12,
          .causal = true,
          .key_lengths = {50, 21}};
}

TEST_CASE("sums of dQ that the first kv tile stores are those that are cleared and added to") {
  const AttentionProblem p = problem_of_unequal_rows(4);
  ProgramOptions options = ProgramOptions::with_tile({16, 8});
  const Kernel& kernel = cpu_kernels().back();
  for (const BackwardOrder order : {BackwardOrder::fused, BackwardOrder::ordered}) {
    options.backward = order;
    TensorSet cleared(p), stored(p);
    for (TensorSet* set : {&cleared, &stored}) {
      fill_random_inputs(*set, Direction::backward);
      options.dq_start = DqStart::cleared;
      kernel.run(options, Direction::forward, *set, nullptr);
      if (set == &stored) options.dq_start = DqStart::in_order;
      kernel.run(options, Direction::backward, *set, nullptr);
    }
    for (const TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv}) {
      for (std::int64_t i = 0; i < cleared[name].shape().elements(); ++i) {
        REQUIRE(stored[name].get(i) == cleared[name].get(i));
      }
    }
  }
  options.diagonal_slices = 2;
  for (const TileProgram& program : kernel.programs(Direction::backward, p, options)) {
    CHECK(program.dq_start == DqStart::cleared);
  }
}

TEST_CASE("CTAs that share kv tiles cut their walks and leave the gradients of whole ones") {
  const AttentionProblem p = problem_of_unequal_rows(6);
  ProgramOptions options = ProgramOptions::with_tile({16, 8});
  options.backward = BackwardOrder::fused;
  const Kernel& kernel = cpu_kernels().back();
  TensorSet whole(p);
  fill_random_inputs(whole, Direction::backward);
  kernel.run(options, Direction::forward, whole, nullptr);
  kernel.run(options, Direction::backward, whole, nullptr);
  for (const int round : {0, 1, 2, 3, 4, 5, 6, 7}) {
    const bool ordered = round >= 4;
    const int splits = std::array{2, 3, 7, 12}[static_cast<std::size_t>(round % 4)];
    CAPTURE(ordered);
    CAPTURE(splits);
    options.backward = ordered ? BackwardOrder::ordered : BackwardOrder::fused;
    options.set_query_splits(splits);
    const std::vector<TileProgram> programs = kernel.programs(Direction::backward, p, options);
    REQUIRE(programs.size() == 5);
    const TileProgram& main = programs[2];
    CHECK(main.head_splits == (splits % 3 == 0 ? 3 : 1));
    CHECK(main.num_ctas() == splits * p.batch * p.heads_kv * main.num_blocks());
    CHECK(main.dq_start == (ordered ? DqStart::in_order : DqStart::cleared));
    TensorSet shared(p);
    fill_random_inputs(shared, Direction::backward);
    kernel.run(options, Direction::forward, shared, nullptr);
    kernel.run(options, Direction::backward, shared, nullptr);
    for (const TensorName name : {TensorName::dq, TensorName::dk, TensorName::dv}) {
      for (std::int64_t i = 0; i < whole[name].shape().elements(); ++i) {
        REQUIRE(shared[name].get(i) == doctest::Approx(whole[name].get(i)).epsilon(1e-4).scale(1e-2));
      }
    }
  }
}

}  // namespace
}  // namespace tilescope
