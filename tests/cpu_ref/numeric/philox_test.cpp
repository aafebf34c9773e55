// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/numeric/philox.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "cpu_ref/numeric/dropout_factors.hpp"
#include "cpu_ref/primitives/tile.hpp"
#include "tests/cpu_ref/instruction_sets.hpp"
#include "tests/random_problems.hpp"

namespace tilescope {
namespace {

// Known answers published with Random123 (kat_vectors: philox4x32, 10 rounds).
TEST_CASE("philox4x32-10 gives the published values") {
  const auto check = [](std::uint64_t seed, Philox4 counter, Philox4 expected) {
    const Philox4 actual = philox4x32(seed, counter);
    for (int i = 0; i < 4; ++i) CHECK(actual.x[i] == expected.x[i]);
  };
  check(0, {{0, 0, 0, 0}}, {{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}});
  check(~std::uint64_t{0}, {{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}},
        {{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}});
  check(0x299f31d0a4093822u, {{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
        {{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}});
}

TEST_CASE("dropout keeps the share it should, and none is none") {
  CHECK_FALSE(DropoutMask().active());
  CHECK_FALSE(DropoutMask(7, 0.0).active());
  for (double dropout : {0.1, 0.5, 0.9}) {
    const DropoutMask mask(42, dropout);
    CHECK(static_cast<double>(mask.keep_scale) == doctest::Approx(1.0 / (1.0 - dropout)));
    int kept = 0;
    constexpr int kSide = 200;
    for (int query = 0; query < kSide; ++query) {
      for (int key = 0; key < kSide; ++key) kept += mask.keep(3, query, key);
    }
    const double share = kept / static_cast<double>(kSide * kSide);
    const double sigma = std::sqrt(dropout * (1.0 - dropout)) / kSide;
    CHECK(std::fabs(share - (1.0 - dropout)) < 5 * sigma);
  }
}

TEST_CASE("factors of whole tiles are those of the mask, both ways round, on every instruction set") {
  testing::for_each_instruction_set([] {
    for (unsigned seed = 0; seed < 60; ++seed) {
      testing::ProblemGenerator random(seed);
      const ScoreRegion region{random.between(0, 100), random.between(0, 1 << 20), random.between(1, 40),
                               random.between(0, 1 << 20), random.between(1, 150)};
      const DropoutMask mask(0x123456789abcdefu + seed, 0.05 * random.between(1, 19));
      Tile by_key(region.keys, region.queries), by_query(region.queries, region.keys);
      dropout_factors(mask, region, Queries::columns, by_key.data(), by_key.stride());
      dropout_factors(mask, region, Queries::rows, by_query.data(), by_query.stride());
      CAPTURE(seed);
      for (int i = 0; i < region.queries; ++i) {
        for (int j = 0; j < region.keys; ++j) {
          const bool kept = mask.keep(region.batch_head, region.first_query + i, region.first_key + j);
          REQUIRE(by_key.row(j)[i] == (kept ? mask.keep_scale : 0.0f));
          REQUIRE(by_query.row(i)[j] == (kept ? mask.keep_scale : 0.0f));
        }
      }
    }
  });
}

TEST_CASE("masks of other seeds and heads differ") {
  const DropoutMask one(1, 0.5), two(2, 0.5);
  int same_seed = 0, same_head = 0;
  for (int key = 0; key < 4000; ++key) {
    same_seed += one.keep(0, 5, key) == two.keep(0, 5, key);
    same_head += one.keep(0, 5, key) == one.keep(1, 5, key);
  }
  CHECK(std::abs(same_seed - 2000) < 160);
  CHECK(std::abs(same_head - 2000) < 160);
}

}  // namespace
}  // namespace tilescope
