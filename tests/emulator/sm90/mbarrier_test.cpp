// SPDX-License-Identifier: Apache-2.0
#include "emulator/sm90/mbarrier.hpp"

#include <doctest/doctest.h>

#include <stdexcept>

namespace tilescope::gpu::emulator::mbarrier_test {

TEST_CASE("emulator: a phase is over when all have arrived and all bytes are there") {
  Mbarrier barrier(2);
  CHECK(barrier.is_over(1));  // the phase before the first
  CHECK_FALSE(barrier.is_over(0));
  barrier.arrive();
  barrier.expect_bytes(64);
  barrier.arrive();
  CHECK_FALSE(barrier.is_over(0));
  barrier.complete_bytes(32);
  CHECK_FALSE(barrier.is_over(0));
  barrier.complete_bytes(32);
  CHECK(barrier.is_over(0));
  CHECK_FALSE(barrier.is_over(1));
  // Bytes may come before they are expected.
  barrier.complete_bytes(16);
  barrier.arrive();
  CHECK_FALSE(barrier.is_over(1));
  barrier.expect_bytes(16);
  barrier.arrive();
  CHECK(barrier.is_over(1));
}

TEST_CASE("emulator: what PTX leaves undefined of mbarriers is an error") {
  Mbarriers barriers;
  CHECK_THROWS_AS(barriers.at(64), std::runtime_error);
  CHECK_THROWS_AS(barriers.init(68, 1), std::runtime_error);
  CHECK_THROWS_AS(barriers.init(64, 0), std::runtime_error);
  CHECK_THROWS_AS(barriers.init(64, 1 << 20), std::runtime_error);
  barriers.init(64, 3);
  CHECK_THROWS_AS(barriers.init(64, 3), std::runtime_error);
  CHECK_THROWS_AS(barriers.at(64).arrive(4), std::runtime_error);
  CHECK_THROWS_AS(barriers.at(64).expect_bytes(1 << 20), std::runtime_error);
  CHECK_THROWS_AS(barriers.at(64).complete_bytes(1 << 20), std::runtime_error);
  barriers.invalidate(64);
  CHECK_THROWS_AS(barriers.at(64).arrive(), std::runtime_error);
  CHECK_THROWS_AS(barriers.invalidate(64), std::runtime_error);
  barriers.init(64, 1);
}

}  // namespace tilescope::gpu::emulator::mbarrier_test
