// SPDX-License-Identifier: Apache-2.0
#include "profiler/timing/timed_samples.hpp"

#include <doctest/doctest.h>

#include "common/errors.hpp"

using namespace tilescope;

TEST_CASE("median and minimum of samples") {
  TimedSamples samples;
  samples.samples_s = {4, 2, 3};
  CHECK(samples.median_s() == 3);
  CHECK(samples.min_s() == 2);
}

TEST_CASE("the state of L2 is read as it is written") {
  for (const L2State state : {L2State::cold, L2State::warm}) CHECK(parse_l2_state(to_string(state)) == state);
  for (const char* text : {"", "hot", "Cold"}) CHECK_THROWS_AS(parse_l2_state(text), BadInput);
}
