// SPDX-License-Identifier: Apache-2.0
// The bounds must lie below what every program moves, and follow their own algebra.
#include "analysis/model/counts/lower_bounds.hpp"

#include <doctest/doctest.h>

#include <vector>

#include <algorithm>

#include "analysis/model/counts/closed_form.hpp"
#include "tests/analysis/algorithm_choices.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

/// Elements that one CTA of a program keeps on chip: a tile of every tensor that it touches, and S, P, dP,
/// dS.
std::int64_t on_chip_elements(const TileProgram& program) {
  std::int64_t elements = 4 * std::int64_t{program.tile.block_m} * program.tile.block_n;
  for (int tensor = 0; tensor < kNumTensors; ++tensor) {
    const TensorName name = static_cast<TensorName>(tensor);
    elements += program.tile_bytes(name) / tensor_extent(program.problem, name).element_bytes;
  }
  return elements;
}

TEST_CASE("the chip is one processor with its L2 and all SMs, and an entry costs no more than half a read") {
  Machine machine;
  machine.sm_count = {2, "test", "datasheet"};
  machine.l2_bytes = {100, "test", "datasheet"};
  machine.on_chip_bytes_per_sm = {10, "test", "datasheet"};
  CHECK(chip_memory(machine).processors == 1);
  CHECK(chip_memory(machine).bytes_per_processor == 120);
  CHECK(sm_memory(machine).processors == 2);
  CHECK(sm_memory(machine).bytes_per_processor == 10);
  CHECK(score_read_bound(1000, 8, 2, 3) == doctest::Approx(1000 * 0.5 - 3 * 2));
  CHECK(score_read_bound(1000, 8, 256, 3) == doctest::Approx(1000 * 0.25 - 3 * 256));
}

TEST_CASE("no program reads less than the bound for the memory that it uses") {
  constexpr int kRandomProblems = 300;
  int not_vacuous = 0;
  for (unsigned seed = 0; seed < kRandomProblems; ++seed) {
    CAPTURE(seed);
    testing::ProblemGenerator random(seed);
    const TileShape tile = random.tile(3);
    AttentionProblem p = random.problem(tile);
    p.seqlen_q = random.between(1, 300);
    p.seqlen_k = random.between(1, 300);
    CAPTURE(describe(p));
    for (const testing::AlgorithmChoice& choice : testing::kAlgorithmChoices) {
      if (choice.algorithm == Algorithm::standard) continue;  // its S crosses between passes
      std::int64_t reads = 0, entries = 0, capacity = 1, formed = 0;
      for (const TileProgram& program : testing::programs_of(choice, p, ProgramOptions::with_tile(tile))) {
        for (const TensorTraffic& tensor : tensor_traffic(program)) {
          reads += tensor.load_bytes / tensor_extent(p, tensor.tensor).element_bytes;
        }
        capacity = std::max(capacity, on_chip_elements(program));
        formed += program.products.count() > 0;
      }
      const FormedEntries of_kinds = formed_entries(p, choice.direction, choice.algorithm);
      entries = of_kinds.scores + of_kinds.dprobs;
      const double bound = score_read_bound(static_cast<double>(entries), static_cast<double>(p.head_dim),
                                            static_cast<double>(capacity), 1);
      CHECK(formed > 0);
      CHECK(bound <= static_cast<double>(reads));
      not_vacuous += bound > 0;
    }
  }
  CHECK(not_vacuous > 200);
}

TEST_CASE("the bound is sharper than the one from 2M-partitions, wherever that says anything") {
  for (double d : {16.0, 64.0, 128.0}) {
    for (double m = d; m <= 1e7; m *= 3) {
      for (double n : {1e3, 1e4, 1e5, 1e6}) {
        const double partitions = n * n * d * d / (m + 4 * d * d) - m;
        CHECK(score_read_bound(n * n, d, m, 1) >= partitions);
      }
    }
  }
}

TEST_CASE("a forward pass in FlashAttention-2's order stays within 4 times the bound at its best tile") {
  // Br -> M / 2d: reads tend to 2 N^2 d / Br = 4 N^2 d^2 / M.
  const double d = 64, m = 1 << 17, n = 1 << 20;
  const double flash = 4 * n * n * d * d / m;
  CHECK(flash / score_read_bound(n * n, d, m, 1) == doctest::Approx(4).epsilon(0.001));
}

TEST_CASE("processors add only their own fast memory") {
  CHECK(score_read_bound(1e9, 64, 1e5, 8) == doctest::Approx(score_read_bound(1e9, 64, 1e5, 1) - 7e5));
}

TEST_CASE("short problems make the score bound vacuous, long ones do not") {
  const Machine h200 = load_machine("h200");
  AttentionProblem p;
  p.head_dim = 128;
  p.dtype = ElementType::fp16;
  p.seqlen_q = p.seqlen_k = 512;
  const ReadBound small = read_bound(p, Direction::forward, Algorithm::flash2, sm_memory(h200));
  CHECK(small.score_bound_vacuous());
  CHECK(small.bytes() == compulsory_bytes(p, Direction::forward).read_bytes);
  p.seqlen_q = p.seqlen_k = 131072;
  const ReadBound large = read_bound(p, Direction::forward, Algorithm::flash2, sm_memory(h200));
  CHECK_FALSE(large.score_bound_vacuous());
  // T d^2 / M - p M with M = 512 KiB / 2 elements: 2^34 / 2^4 - 132 * 2^18 elements of 2 bytes.
  CHECK(large.bytes() == 2 * ((std::int64_t{1} << 30) - 132 * (std::int64_t{1} << 18)));
  CHECK(read_bound(p, Direction::forward, Algorithm::flash2, chip_memory(h200)).score_bound_vacuous());
  p.causal = true;
  const std::int64_t pairs = p.seqlen_q * (p.seqlen_q + 1) / 2;
  const auto formed = [&p](Direction direction, Algorithm algorithm) {
    const FormedEntries entries = formed_entries(p, direction, algorithm);
    return std::vector{entries.scores, entries.dprobs};
  };
  CHECK(formed(Direction::forward, Algorithm::flash2) == std::vector<std::int64_t>{pairs, 0});
  CHECK(formed(Direction::backward, Algorithm::flash2) == std::vector<std::int64_t>{pairs, pairs});
  CHECK(formed(Direction::backward, Algorithm::standard) == std::vector<std::int64_t>{0, pairs});
  // Values of half the columns: a quarter of the reads for an entry of dP.
  p.head_dim = 64;
  const auto score_bytes = [&p, &h200] {
    return read_bound(p, Direction::backward, Algorithm::flash2, sm_memory(h200)).score_bytes;
  };
  const std::int64_t whole = score_bytes();
  p.head_dim_v = 32;
  const std::int64_t of_all_sms = 132 * sm_memory(h200).bytes_per_processor;
  CHECK(8 * (score_bytes() + of_all_sms) == 5 * (whole + of_all_sms));
}

}  // namespace
}  // namespace tilescope
