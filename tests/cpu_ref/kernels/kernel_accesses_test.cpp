// SPDX-License-Identifier: Apache-2.0
// What the kernels do against what their programs say: the same tile accesses in the same order.
#include <doctest/doctest.h>

#include <cmath>

#include "cpu_ref/judge/locate.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "tests/cpu_ref/kernels/kernel_cases.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr int kObservedProblems = 50;

std::string text(const TileAccess& a) {
  return std::string(to_string(a.kind)) + " " + std::string(to_string(a.tensor)) + " batch " +
         std::to_string(a.batch) + " head " + std::to_string(a.head) + " m " + std::to_string(a.m_block) +
         " n " + std::to_string(a.n_block) + " bytes " + std::to_string(a.bytes);
}

void check_log(const PassLog& log, const TileProgram& program) {
  CAPTURE(to_string(program.name));
  CHECK(log.pass == program.name);
  REQUIRE(log.ctas.size() == static_cast<std::size_t>(program.num_ctas()));
  CHECK(!first_wrong_visit(program, log));
  for (std::size_t cta = 0; cta < log.ctas.size(); ++cta) {
    std::vector<TileAccess> expected;
    for_each_access(program, static_cast<std::int64_t>(cta),
                    [&](const TileAccess& access) { expected.push_back(access); });
    const std::vector<TileAccess>& actual = log.ctas[cta].accesses;
    CAPTURE(cta);
    REQUIRE(actual.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      if (actual[i] == expected[i]) continue;
      FAIL_CHECK("made: " << text(actual[i]) << "; program: " << text(expected[i]));
      return;
    }
  }
}

TEST_CASE("observed accesses are the program's, in order") {
  for (unsigned seed = 0; seed < kObservedProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    ProgramOptions options;
    const int slices = 1 + static_cast<int>(seed) % 3;
    for (PassOptions& pass : options.passes) pass.tile = random.tile_of_slices(slices, 24 / slices);
    AttentionProblem p = random.problem(options[PassName::forward].tile);
    p.dtype = kElementTypes[seed % 3];
    if (random.chance(0.2)) p.dropout = 0.25;
    if (seed % 6 == 0) p = random.masked(p);
    if (seed % 3 == 0) p = random.padded(p);
    options.order = random.chance(0.5) ? TileOrder::row_major : TileOrder::longest_first;
    options.scan = random.chance(0.5) ? Scan::ascending : Scan::sawtooth;
    CAPTURE(seed);
    CAPTURE(describe(p));
    for (const testing::KernelCase& c : testing::kernel_cases()) {
      CAPTURE(c.name());
      options.backward = c.backward;
      options.diagonal_slices = c.kernel->smallest_part > 0 ? slices : 1;
      options.dq_start = seed % 2 == 0 ? DqStart::in_order : DqStart::cleared;
      options.set_query_splits(seed % 4 == 1 ? random.between(2, 5) : 1);
      TensorSet tensors(p);
      fill_random_inputs(tensors, Direction::backward);
      TileObserver forward, backward;
      testing::run_kernel(c, options, Direction::backward, tensors, &forward, &backward);
      for (const auto& [direction, observer] :
           {std::pair{Direction::forward, &forward}, std::pair{Direction::backward, &backward}}) {
        const auto programs = c.kernel->programs(direction, p, options);
        REQUIRE(observer->passes.size() == programs.size());
        for (std::size_t i = 0; i < programs.size(); ++i) check_log(observer->passes[i], programs[i]);
      }
    }
  }
}

/// The states of one pass, in issue order.
std::vector<TileState> states_of(const TileObserver& observer, PassName pass) {
  std::vector<TileState> states;
  for (const PassLog& log : observer.passes) {
    if (log.pass != pass) continue;
    for (const CtaLog& cta : log.ctas) states.insert(states.end(), cta.states.begin(), cta.states.end());
  }
  return states;
}

TEST_CASE("states: one a visited tile, and the last ones sum up to the results") {
  const AttentionProblem p{
      .heads = 2, .heads_kv = 1, .seqlen_q = 50, .seqlen_k = 61, .head_dim = 12, .causal = true};
  const ProgramOptions options = ProgramOptions::with_tile({16, 16});
  const auto sum = [](const Tensor& tensor) {
    double total = 0;
    for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) total += static_cast<double>(tensor.get(i));
    return total;
  };
  for (const testing::KernelCase& c : testing::kernel_cases()) {
    if (c.kernel->algorithm != Algorithm::flash2) continue;
    CAPTURE(c.name());
    TensorSet tensors(p);
    fill_random_inputs(tensors, Direction::backward);
    TileObserver forward, backward;
    testing::run_kernel(c, options, Direction::backward, tensors, &forward, &backward);
    ProgramOptions with_order = options;
    with_order.backward = c.backward;
    for (const TileProgram& program : c.kernel->programs(Direction::backward, p, with_order)) {
      CHECK(states_of(backward, program.name).size() == static_cast<std::size_t>(program.visited_tiles()));
    }
    const auto states = states_of(forward, PassName::forward);
    double row_sums = 0, lse_sum = 0;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const bool last = i + 1 == states.size() || states[i + 1].m_block != states[i].m_block ||
                        states[i + 1].head != states[i].head;
      if (last) row_sums += states[i].row_max * p.scale();
    }
    lse_sum = sum(tensors[TensorName::lse]);
    CHECK(row_sums < lse_sum);  // lse = scaled row maximum + log of a sum of at least 1
    CHECK(lse_sum < row_sums + 100.0 * std::log(61.0));
    if (c.backward == BackwardOrder::split) {
      double dq = 0;
      const auto dq_states = states_of(backward, PassName::dq);
      for (std::size_t i = 0; i < dq_states.size(); ++i) {
        const bool last = i + 1 == dq_states.size() || dq_states[i + 1].m_block != dq_states[i].m_block ||
                          dq_states[i + 1].head != dq_states[i].head;
        if (last) dq += dq_states[i].accum * p.scale();
      }
      CHECK(dq == doctest::Approx(sum(tensors[TensorName::dq])).epsilon(1e-4));
    }
  }
}

}  // namespace
}  // namespace tilescope
