// SPDX-License-Identifier: Apache-2.0
// Backward orders that sum in memory: the same passes and bits, and CTAs that share kv tiles.
#include <doctest/doctest.h>

#include <array>
#include <cstring>

#include "cpu_ref/judge/compare.hpp"
#include "cpu_ref/kernels/kernel.hpp"
#include "cpu_ref/numeric/random_inputs.hpp"
#include "cpu_ref/schedule/sum_slots.hpp"

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
    if (!adds_slots(marked[i])) CHECK(marked[i].tile == plain[i].tile);
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

/// Of twenty kv tiles of 32 keys, which two slots of dQ pay for.
AttentionProblem problem_of_two_slots() {
  return {.heads = 4, .heads_kv = 2, .seqlen_q = 4323, .seqlen_k = 630, .head_dim = 64, .causal = true};
}

TEST_CASE(
    "slots of dQ are few where many heads or queries keep kv tiles apart, and there is one of many bytes") {
  const TileShape tile{64, 128};
  const auto slots = [&](const AttentionProblem& problem) { return dq_slots(problem, tile); };
  CHECK(slots({.heads = 8, .seqlen_q = 679, .seqlen_k = 679, .head_dim = 192}) == DqSlots{6, DqSlots::kOwn});
  CHECK(slots({.heads = 8, .seqlen_q = 679, .seqlen_k = 120, .head_dim = 192}) == DqSlots{});
  CHECK(slots({.heads = 15, .heads_kv = 15, .seqlen_q = 45, .seqlen_k = 43712, .head_dim = 256}) ==
        DqSlots{8, 3});
  CHECK(slots({.heads = 150, .heads_kv = 150, .seqlen_q = 45, .seqlen_k = 43712, .head_dim = 256}) ==
        DqSlots{1, 0});
  CHECK(slots({.heads = 1, .seqlen_q = 45000, .seqlen_k = 43712, .head_dim = 256}) == DqSlots{4, 2});
  CHECK(slots({.heads = 1, .seqlen_q = 450000, .seqlen_k = 43712, .head_dim = 256}) == DqSlots{1, 0});
  CHECK(slots({.batch = 64, .heads = 16, .seqlen_q = 8192, .seqlen_k = 8192, .head_dim = 128}) == DqSlots{});
  AttentionProblem window{
      .seqlen_q = 40000, .seqlen_k = 40000, .head_dim = 64, .window_left = 200, .window_right = 0};
  for (int queries = 1; queries < 400; queries += 61) {
    window.seqlen_q = queries;
    const DqSlots of = slots(window);
    for (int block = 0; block < num_m_blocks(window.band(), tile); ++block)
      CHECK(of.filled(kv_tiles(window.band(), tile, block).count()) <= of.count);
  }
}

TEST_CASE("dQ of few slots, of which several kv tiles add to each in turn, is that of one") {
  const AttentionProblem p = problem_of_two_slots();
  ProgramOptions options = ProgramOptions::with_tile({64, 32});
  const Kernel& kernel = cpu_kernels().back();
  TensorSet fused(p), ordered(p);
  for (TensorSet* set : {&fused, &ordered}) {
    fill_random_inputs(*set, Direction::backward);
    kernel.run(options, Direction::forward, *set, nullptr);
    options.backward = set == &fused ? BackwardOrder::fused : BackwardOrder::ordered;
    kernel.run(options, Direction::backward, *set, nullptr);
  }
  CHECK(dq_slots(p, {64, 32}) == DqSlots{2, 1});
  for (std::int64_t i = 0; i < fused[TensorName::dq].shape().elements(); ++i) {
    REQUIRE(ordered[TensorName::dq].get(i) ==
            doctest::Approx(fused[TensorName::dq].get(i)).epsilon(1e-5).scale(1e-2));
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
    REQUIRE(programs.size() == (ordered ? 4 : 5));  // slots of sums are not cleared
    const TileProgram& main = programs[ordered ? 1 : 2];
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
