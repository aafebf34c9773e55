// SPDX-License-Identifier: Apache-2.0
// How often CTAs sweep K and V, against formulas: in lockstep, in a sawtooth, and where they drift apart.
#include <doctest/doctest.h>

#include <algorithm>

#include "analysis/model/counts/closed_form.hpp"
#include "analysis/model/replay/traffic_simulator.hpp"
#include "tests/analysis/model/replay/replayed_programs.hpp"

namespace tilescope {
namespace {

using testing::OneHead;

TEST_CASE("CTAs in lockstep sweep K and V once a wave when these exceed the L2: w = ceil(Tr / C)") {
  const OneHead head(22, 40);
  for (int ctas : {1, 2, 3, 5, 7, 11, 21, 22, 30}) {
    CAPTURE(ctas);
    const PassTraffic traffic = simulate_pass(head.forward(Scan::ascending), {ctas});
    const int waves = ceil_div(head.q_tiles, std::min(ctas, head.q_tiles));
    CHECK(traffic.dram_read_bytes(head.kv_bytes - 1) == head.q_bytes + waves * head.kv_bytes);
    CHECK(traffic.dram_read_bytes(std::int64_t{1} << 60) == head.q_bytes + head.kv_bytes);
  }
}

TEST_CASE("an L2 that holds K, V and one wave of Q and O leaves only the compulsory reads") {
  const OneHead head(22, 40);
  const std::int64_t wave = 4 * (2 * OneHead::kTile.block_m * head.problem.head_dim * 2 +
                                 OneHead::kTile.block_m * 4);  // Q, O, LSE of four CTAs
  const PassTraffic traffic = simulate_pass(head.forward(Scan::ascending), {4});
  CHECK(traffic.dram_read_bytes(head.kv_bytes + wave) == head.q_bytes + head.kv_bytes);
}

TEST_CASE("without sharing between CTAs every sweep is the closed form") {
  const OneHead head(22, 40);
  const TileProgram program = head.forward(Scan::ascending);
  CHECK(simulate_pass(program, {1}).dram_read_bytes(head.kv_bytes - 1) ==
        closed_form_bytes(program).sm_l2_read_bytes);
}

TEST_CASE("a sawtooth scan re-reads only what the L2 could not keep: S + (w - 1)(S - L2)") {
  const OneHead head(6, 40);
  const PassTraffic traffic = simulate_pass(head.forward(Scan::sawtooth), {1});
  const std::int64_t q_tile = OneHead::kTile.block_m * head.problem.head_dim * 2;
  const std::int64_t between = q_tile + OneHead::kTile.block_m * 4 + q_tile;  // O, LSE out, the next Q in
  const std::int64_t pair = 2 * OneHead::kTile.block_n * head.problem.head_dim * 2;
  for (int kept : {1, 5, 20, 39, 40}) {  // K/V pairs that the L2 keeps across the turn
    CAPTURE(kept);
    const std::int64_t l2_bytes = between + kept * pair;
    const std::int64_t sweeps = head.kv_bytes + (head.q_tiles - 1) * (head.kv_bytes - kept * pair);
    CHECK(traffic.dram_read_bytes(l2_bytes) == head.q_bytes + sweeps);
  }
}

TEST_CASE(
    "co-resident CTAs gain from a sawtooth that turns with each wave, and lose from one that does not") {
  constexpr int kCtas = 4;
  const OneHead head(24, 40);
  const auto reads = [&](Scan scan, int ctas_per_wave) {
    TileProgram program = head.forward(scan);
    program.grid.ctas_per_wave = ctas_per_wave;
    return simulate_pass(program, {kCtas}).dram_read_bytes(head.kv_bytes / 2);
  };
  const std::int64_t ascending = reads(Scan::ascending, 1);
  constexpr int kWaves = 24 / kCtas;
  CHECK(ascending == head.q_bytes + kWaves * head.kv_bytes);
  CHECK(reads(Scan::sawtooth, kCtas) < head.q_bytes + head.kv_bytes + (kWaves - 1) * head.kv_bytes * 3 / 4);
  CHECK(reads(Scan::sawtooth, 1) > ascending);
}

TEST_CASE("CTAs of SMs whose clocks differ read more once they drift apart by what the L2 holds") {
  const OneHead head(40, 40);
  const TileProgram program = head.forward(Scan::ascending);
  const std::int64_t l2_bytes = head.kv_bytes / 4;
  const std::int64_t in_step = simulate_pass(program, {.co_resident_ctas = 4}).dram_read_bytes(l2_bytes);
  const auto with_clocks = [&](double cv) {
    const CtaSchedule schedule{
        .co_resident_ctas = 4, .progress = {.clock_cv = cv}, .sm_groups = {{1, 0}, {1, 0}, {1, 0}, {1, 0}}};
    return simulate_pass(program, schedule).dram_read_bytes(l2_bytes);
  };
  CHECK(with_clocks(0.001) == in_step);
  CHECK(with_clocks(0.2) > in_step * 3 / 2);
  const auto with_tpcs = [&](double cv) {
    const CtaSchedule schedule{.co_resident_ctas = 4, .progress = {.tpc_cv = cv}};
    return simulate_pass(program, schedule).dram_read_bytes(l2_bytes);
  };
  CHECK(with_tpcs(0.001) == in_step);
  CHECK(with_tpcs(0.2) > in_step * 5 / 4);
  // Steps that differ by themselves make up for each other.
  const auto with_steps = [&](double cv) {
    const CtaSchedule schedule{.co_resident_ctas = 4, .progress = {.step_cv = cv}};
    return simulate_pass(program, schedule).dram_read_bytes(l2_bytes);
  };
  CHECK(with_steps(0.01) == in_step);
  CHECK(with_steps(0.5) > in_step);
}

TEST_CASE("CTAs of an SM that do not share it evenly stagger, and each sweeps K and V by itself") {
  const OneHead head(64, 40);
  const TileProgram program = head.forward(Scan::ascending);
  const auto sweeps = [&](double younger_rate) {
    const PassTraffic traffic =
        simulate_pass(program, {.co_resident_ctas = 8,
                                .ctas_per_sm = 2,
                                .progress = {.younger_rate = younger_rate, .alone_rate = 1}});
    const std::int64_t read = traffic.dram_read_bytes(head.kv_bytes / 4) - head.q_bytes;
    return static_cast<double>(read) / static_cast<double>(head.kv_bytes);
  };
  CHECK(sweeps(1.0) == 8);  // waves of eight CTAs
  CHECK(sweeps(0.8) > 14);  // nearly waves of four
  CHECK(sweeps(0.8) < 16.5);
}

}  // namespace
}  // namespace tilescope
