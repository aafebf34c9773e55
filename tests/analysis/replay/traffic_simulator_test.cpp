// SPDX-License-Identifier: Apache-2.0
// One replay must tell what a direct simulation of each cache size tells, and meet the closed forms at both
// ends.
#include "analysis/replay/traffic_simulator.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <list>
#include <map>
#include <tuple>

#include "analysis/counts/closed_form.hpp"
#include "analysis/replay/cache/reuse_stack.hpp"
#include "common/errors.hpp"
#include "cpu_ref/schedule/cta_walk.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

constexpr std::int64_t kInfinite = std::int64_t{1} << 60;

/// An LRU cache of one size, as one would write it without thinking of others.
class DirectCache {
 public:
  explicit DirectCache(std::int64_t capacity) : capacity_(capacity) {}

  void access(const TileAccess& access) {
    const Key key{access.tensor, access.batch, access.head, access.m_block, access.n_block};
    const auto found = places_.find(key);
    Line line{key, access.bytes, false};
    if (found != places_.end()) {
      line = *found->second;
      lines_.erase(found->second);
      used_ -= line.bytes;
    } else if (access.kind != AccessKind::store) {
      read_bytes += access.bytes;
    }
    line.dirty = line.dirty || access.kind != AccessKind::load;
    lines_.push_front(line);
    places_[key] = lines_.begin();
    used_ += line.bytes;
    while (used_ > capacity_) evict();
  }
  void flush() {
    while (!lines_.empty()) evict();
  }

  std::int64_t read_bytes = 0, write_bytes = 0;

 private:
  using Key = std::tuple<TensorName, int, int, int, int>;
  struct Line {
    Key key;
    std::int64_t bytes;
    bool dirty;
  };
  void evict() {
    const Line line = lines_.back();
    if (line.dirty) write_bytes += line.bytes;
    used_ -= line.bytes;
    places_.erase(line.key);
    lines_.pop_back();
  }

  std::int64_t capacity_, used_ = 0;
  std::list<Line> lines_;  // most recent first
  std::map<Key, std::list<Line>::iterator> places_;
};

/// The accesses of `ctas` CTAs in step, each replaced when it retires.
std::vector<TileAccess> interleaved(const TileProgram& program, std::int64_t ctas) {
  std::vector<TileAccess> all;
  AccessGroup group;
  std::vector<CtaWalk> running;
  std::int64_t next = 0;
  while (next < program.num_ctas() && next < ctas) running.emplace_back(program, next++);
  while (!running.empty()) {
    for (auto walk = running.begin(); walk != running.end();) {
      while (!walk->next(group) && next < program.num_ctas()) *walk = CtaWalk(program, next++);
      if (group.operands.empty()) {
        walk = running.erase(walk);
        continue;
      }
      for (const Operand& operand : group.operands) {
        all.push_back(program.access(operand, group.batch, group.head, group.m_block, group.n_block));
      }
      ++walk;
    }
  }
  return all;
}

ProgramOptions random_options(testing::ProblemGenerator& random, TileShape tile) {
  ProgramOptions options = ProgramOptions::with_tile(tile);
  options.order = static_cast<TileOrder>(random.between(0, 2));
  options.scan = static_cast<Scan>(random.between(0, 2));
  options.heads_per_section = random.between(1, 3);
  options.ctas_per_turn = random.between(1, 5);
  return options;
}

TEST_CASE("a replay equals a direct LRU simulation at every size, and the closed forms at both ends") {
  constexpr int kRandomProblems = 120;
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    testing::ProblemGenerator random(seed);
    const int slices = 1 + static_cast<int>(seed) % 3;
    const TileShape tile = random.tile_of_slices(slices, 16 / slices);
    AttentionProblem p = random.problem(tile);
    p.dtype = kElementTypes[random.between(0, 4)];
    ProgramOptions options = random_options(random, tile);
    options.diagonal_slices = slices;
    const int ctas = random.between(1, 9);
    CAPTURE(seed);
    CAPTURE(describe(p));
    CAPTURE(tile.block_m);
    CAPTURE(tile.block_n);
    CAPTURE(ctas);
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program : testing::programs_of(choice, p, options)) {
        CAPTURE(to_string(choice.algorithm));
        CAPTURE(to_string(program.name));
        int retired = 0;
        const PassTraffic traffic = simulate_pass(program, {ctas}, [&] { ++retired; });
        CHECK(retired == program.num_ctas());
        const ClosedFormBytes closed = closed_form_bytes(program);
        CHECK(traffic.sm_l2_read_bytes() == closed.sm_l2_read_bytes);
        CHECK(traffic.sm_l2_write_bytes() == closed.sm_l2_write_bytes);
        CHECK(traffic.dram_read_bytes(kInfinite) == closed.compulsory_read_bytes);
        CHECK(traffic.dram_write_bytes(kInfinite) == closed.compulsory_write_bytes);
        CHECK(traffic.dram_read_bytes(0) == closed.sm_l2_read_bytes + traffic.reduce_bytes);
        CHECK(traffic.dram_write_bytes(0) == closed.sm_l2_write_bytes);

        const std::vector<TileAccess> accesses = interleaved(program, ctas);
        REQUIRE(static_cast<std::int64_t>(accesses.size()) == traffic.accesses);
        std::int64_t largest = 1;
        for (const ReusePoint& point : traffic.histogram) largest = std::max(largest, point.distance_bytes);
        std::vector<std::int64_t> sizes = {1, largest - 1, largest};
        for (int i = 0; i < 4; ++i) sizes.push_back(random.between(1, static_cast<int>(largest)));
        for (const std::int64_t size : sizes) {
          CAPTURE(size);
          DirectCache cache(size);
          for (const TileAccess& access : accesses) cache.access(access);
          cache.flush();
          CHECK(traffic.dram_read_bytes(size) == cache.read_bytes);
          CHECK(traffic.dram_write_bytes(size) == cache.write_bytes);
        }
      }
    }
  }
}

TEST_CASE("a larger L2 never moves more, and its hit rate lies between 0 and 1") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile();
    const AttentionProblem p = random.problem(tile);
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program : testing::programs_of(choice, p, random_options(random, tile))) {
        const PassTraffic traffic =
            simulate_pass(program, {.co_resident_ctas = random.between(1, 40),
                                    .progress = {.clock_cv = 0.05 * random.between(0, 2)},
                                    .sm_groups = {{3, 0}, {2, 0}}});
        std::int64_t reads = traffic.dram_read_bytes(0), writes = traffic.dram_write_bytes(0);
        for (const ReusePoint& point : traffic.histogram) {
          CHECK(traffic.dram_read_bytes(point.distance_bytes) <= reads);
          CHECK(traffic.dram_write_bytes(point.distance_bytes) <= writes);
          reads = traffic.dram_read_bytes(point.distance_bytes);
          writes = traffic.dram_write_bytes(point.distance_bytes);
          CHECK(traffic.hit_rate(reads) >= 0);
          CHECK(traffic.hit_rate(reads) <= 1);
        }
      }
    }
  }
}

TEST_CASE("stack distances equal those of a list, through many compactions") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    // More tiles than half the first timeline in some rounds, so that it doubles too.
    const int tiles = seed % 2 == 0 ? 60 : 5000;
    ReuseStack stack(static_cast<std::uint32_t>(tiles));
    std::list<int> list;
    const auto size_of = [](int tile) { return 1 + tile % 7; };
    for (int touch = 0; touch < 12000; ++touch) {
      const int tile = random.between(0, tiles - 1);
      std::int64_t distance = 0;
      auto place = list.begin();
      for (; place != list.end(); ++place) {
        distance += size_of(*place);
        if (*place == tile) break;
      }
      if (place == list.end()) distance = ReuseStack::kNever;
      REQUIRE(stack.touch(static_cast<std::uint32_t>(tile), size_of(tile)) == distance);
      if (place != list.end()) list.erase(place);
      list.push_front(tile);
    }
  }
}

/// One head of flash2 forward, 16-bit, N a multiple of both tile sides.
struct OneHead {
  static constexpr TileShape kTile{16, 8};
  AttentionProblem problem;
  std::int64_t q_bytes, kv_bytes;
  int q_tiles;

  OneHead(int q_tiles_, int kv_tiles) : q_tiles(q_tiles_) {
    problem.head_dim = 32;
    problem.dtype = ElementType::fp16;
    problem.seqlen_q = q_tiles * kTile.block_m;
    problem.seqlen_k = kv_tiles * kTile.block_n;
    q_bytes = problem.seqlen_q * problem.head_dim * 2;
    kv_bytes = 2 * problem.seqlen_k * problem.head_dim * 2;
  }
  TileProgram forward(Scan scan) const {
    ProgramOptions options = ProgramOptions::with_tile(kTile);
    options.scan = scan;
    return build_programs(Algorithm::flash2, Direction::forward, problem, options).front();
  }
};

TEST_CASE("CTAs in lockstep sweep K and V once a wave when these exceed the L2: w = ceil(Tr / C)") {
  const OneHead head(22, 40);
  for (int ctas : {1, 2, 3, 5, 7, 11, 21, 22, 30}) {
    CAPTURE(ctas);
    const PassTraffic traffic = simulate_pass(head.forward(Scan::ascending), {ctas});
    const int waves = ceil_div(head.q_tiles, std::min(ctas, head.q_tiles));
    CHECK(traffic.dram_read_bytes(head.kv_bytes - 1) == head.q_bytes + waves * head.kv_bytes);
    CHECK(traffic.dram_read_bytes(kInfinite) == head.q_bytes + head.kv_bytes);
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
  const auto reads = [&](Scan scan, int ctas_per_turn) {
    TileProgram program = head.forward(scan);
    program.grid.ctas_per_turn = ctas_per_turn;
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

TEST_CASE("a split L2 is asked for what the closed forms say, and moves between the least and that") {
  constexpr SplitL2Shape kShape{std::int64_t{16} << 20, 16, {}};
  for (unsigned seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(16);
    const AttentionProblem p = random.problem(tile);
    SplitL2Shape shape = kShape;
    shape.sm_groups = {{2, 0}, {3, 1}, {random.between(1, 4), 0}};
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      for (const TileProgram& program : testing::programs_of(choice, p, random_options(random, tile))) {
        CAPTURE(to_string(program.name));
        for (const auto pages : {PagePlacement::contiguous, PagePlacement::random}) {
          int retired = 0;
          const SplitL2Traffic traffic =
              simulate_split_l2(program, {random.between(1, 9)}, shape, pages, [&] { ++retired; });
          CHECK(retired == program.num_ctas());
          const ClosedFormBytes closed = closed_form_bytes(program);
          CHECK(traffic.sm_l2_read_bytes() == closed.sm_l2_read_bytes);
          CHECK(traffic.sm_l2_write_bytes() == closed.sm_l2_write_bytes);
          // These problems take a fraction of the L2.
          CHECK(traffic.dram_read_bytes == closed.compulsory_read_bytes);
          CHECK(traffic.dram_write_bytes == closed.compulsory_write_bytes);
        }
      }
    }
  }
}

TEST_CASE("an L2 of fewer sets than are sampled is refused, and ends no thread") {
  const OneHead head(22, 2048);
  const SplitL2Shape shape{1 << 16, 16, {{1, 0}}};  // 32 sets
  CHECK_THROWS_AS(simulate_split_l2(head.forward(Scan::ascending), {1}, shape), BadInput);
}

TEST_CASE("who is told of retired CTAs may end a replay, whatever thread it is on") {
  AttentionProblem p;
  p.heads = p.heads_kv = 8;
  p.seqlen_q = p.seqlen_k = 256;
  const SplitL2Shape shape{std::int64_t{16} << 20, 16, {{2, 0}, {3, 1}}};
  struct Enough {};
  const auto refuse = [] { throw Enough(); };
  for (const TileProgram& program :
       testing::programs_of(testing::kAlgorithmChoices[0], p, ProgramOptions::with_tile({16, 16}))) {
    CHECK_THROWS_AS(simulate_pass(program, {4}, refuse), Enough);
    CHECK_THROWS_AS(simulate_split_l2(program, {4}, shape, PagePlacement::random, refuse), Enough);
  }
}

TEST_CASE("a split L2 far too small keeps nothing from one sweep of K and V to the next") {
  const OneHead head(22, 2048);
  constexpr SplitL2Shape kShape{kL2Partitions * 128 * std::int64_t{256}, 2, {}};
  for (const int ctas : {1, 2, 11}) {
    CAPTURE(ctas);
    SplitL2Shape shape = kShape;
    shape.sm_groups = {{ctas, 0}};
    const SplitL2Traffic traffic = simulate_split_l2(head.forward(Scan::ascending), {ctas}, shape);
    const int waves = ceil_div(head.q_tiles, ctas);
    CHECK(static_cast<double>(traffic.dram_read_bytes) ==
          doctest::Approx(static_cast<double>(head.q_bytes + waves * head.kv_bytes)).epsilon(0.01));
  }
}

/// gpu:flash2-mma and others, forward, fp16, block_m = 128; dram__bytes_read on an H200.
struct Anchor {
  std::int64_t heads, seqlen, head_dim, ctas_per_sm;
  bool stagger;
  double measured_bytes, tolerance;
};

TEST_CASE("the model of the H200 against DRAM reads measured on one") {
  const Machine h200 = load_machine("h200");
  const Anchor anchors[] = {
      // gpu:flash2-mma
      {32, 8192, 128, 2, true, 206.2e6, 0.05},
      {8, 32768, 128, 2, true, 296.4e6, 0.1},
      {4, 65536, 128, 2, true, 573.3e6, 0.05},
      {2, 131072, 128, 2, true, 1102e6, 0.05},
      {4, 65536, 64, 2, true, 118.5e6, 0.1},
      {2, 131072, 64, 2, true, 452.4e6, 0.1},
      // cuDNN 9.19: one CTA an SM.
      {4, 65536, 128, 1, false, 678.9e6, 0.05},
      {2, 131072, 128, 1, false, 1244.4e6, 0.05},
  };
  for (const Anchor& anchor : anchors) {
    CAPTURE(anchor.seqlen);
    CAPTURE(anchor.head_dim);
    AttentionProblem p;
    p.heads = p.heads_kv = static_cast<int>(anchor.heads);
    p.seqlen_q = p.seqlen_k = anchor.seqlen;
    p.head_dim = anchor.head_dim;
    p.dtype = ElementType::fp16;
    const auto passes =
        build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile({128, 64}));
    const CtaSchedule schedule{
        .co_resident_ctas = h200.sm_count.value * anchor.ctas_per_sm,
        .ctas_per_sm = anchor.ctas_per_sm,
        .progress = anchor.stagger ? h200.progress_of("gpu:flash2-mma", "forward", p) : ProgressRates{}};
    const SplitL2Traffic traffic = simulate_split_l2(passes[0], schedule, *h200.split_l2());
    CHECK(static_cast<double>(traffic.dram_read_bytes) ==
          doctest::Approx(anchor.measured_bytes).epsilon(anchor.tolerance));
  }
}

/// gpu:flash1 forward, fp16, pages of its tensors at random places.
SplitL2Traffic flash1_random_pages(AttentionProblem p, TileShape tile) {
  const Machine h200 = load_machine("h200");
  p.dtype = ElementType::fp16;
  const auto passes =
      build_programs(Algorithm::flash1, Direction::forward, p, ProgramOptions::with_tile(tile));
  const CtaSchedule schedule{.co_resident_ctas = h200.sm_count.value, .sm_groups = h200.sm_groups->value};
  return simulate_split_l2(passes.front(), schedule, *h200.split_l2(), PagePlacement::random);
}

TEST_CASE("medians over layouts against those of DRAM reads measured with pages at random places") {
  AttentionProblem p;
  p.heads = 8;
  p.heads_kv = 1;
  p.seqlen_q = p.seqlen_k = 4096;
  p.head_dim = 128;
  const SplitL2Traffic few = flash1_random_pages(p, {128, 64});
  CHECK(static_cast<double>(few.dram_read_bytes) == doctest::Approx(184e6).epsilon(0.15));
  REQUIRE(few.dram_read_range);
  CHECK((*few.dram_read_range)[0] < few.dram_read_bytes);
  CHECK((*few.dram_read_range)[1] > few.dram_read_bytes);
  const SplitL2Traffic again = flash1_random_pages(p, {128, 64});
  CHECK(again.dram_read_bytes == few.dram_read_bytes);
  CHECK(again.dram_write_bytes == few.dram_write_bytes);
  CHECK(again.dram_read_range == few.dram_read_range);

  p.heads = 128;
  p.heads_kv = 16;
  p.seqlen_q = p.seqlen_k = 1024;
  p.head_dim = 64;
  CHECK(static_cast<double>(flash1_random_pages(p, {128, 128}).dram_read_bytes) ==
        doctest::Approx(319e6).epsilon(0.15));
}

TEST_CASE("co-residency follows the machine's SMs and the program's shared memory") {
  const Machine h200 = load_machine("h200");
  AttentionProblem p;
  p.seqlen_q = p.seqlen_k = 4096;
  p.head_dim = 128;
  p.dtype = ElementType::fp16;
  const auto resident = [&](TileShape tile) {
    const auto programs =
        build_programs(Algorithm::flash2, Direction::forward, p, ProgramOptions::with_tile(tile));
    return co_resident_ctas(programs.front(), h200);
  };
  CHECK(resident({128, 64}) == 132 * 2);   // 32 KiB of Q, 2 stages of 32 KiB of K and V
  CHECK(resident({128, 128}) == 132 * 1);  // 160 KiB
}

}  // namespace
}  // namespace tilescope
