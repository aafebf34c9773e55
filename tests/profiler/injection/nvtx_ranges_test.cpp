// SPDX-License-Identifier: Apache-2.0
#include "profiler/injection/nvtx_ranges.hpp"

#include <doctest/doctest.h>

#include <thread>

using namespace tilescope;

TEST_CASE("without an expression every launch is inside, whatever ranges there are") {
  NvtxRanges ranges("");
  CHECK(ranges.inside());
  ranges.push(nullptr, "step");
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  CHECK(ranges.inside());
}

TEST_CASE("nested ranges are inside until the outermost that matches ends") {
  NvtxRanges ranges("^step");
  CHECK(!ranges.inside());
  ranges.push(nullptr, "a step");
  CHECK(!ranges.inside());
  ranges.push(nullptr, "step 1");
  ranges.push(nullptr, "forward");
  ranges.push(nullptr, "step within");
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  ranges.pop(nullptr);
  CHECK(ranges.inside());
  ranges.pop(nullptr);
  CHECK(!ranges.inside());
  ranges.pop(nullptr);
  ranges.pop(nullptr);  // one more end than beginnings
  ranges.push(nullptr, nullptr);
  CHECK(!ranges.inside());
  ranges.pop(nullptr);
}

TEST_CASE("domains nest by themselves, and another thread's range counts") {
  NvtxRanges ranges("step");
  int domain = 0;
  ranges.push(&domain, "step");
  ranges.pop(nullptr);
  CHECK(ranges.inside());
  bool inside_elsewhere = false;
  std::thread([&] {
    inside_elsewhere = ranges.inside();
    ranges.pop(&domain);  // nothing was pushed there
  }).join();
  CHECK(inside_elsewhere);
  CHECK(ranges.inside());
  ranges.pop(&domain);
  CHECK(!ranges.inside());
}

TEST_CASE("ranges that start and end anywhere are told by their numbers") {
  NvtxRanges ranges("step");
  const std::uint64_t first = ranges.next_id(), second = ranges.next_id();
  CHECK(first != second);
  ranges.start(first, "step");
  ranges.start(second, "other");
  ranges.end(second);
  CHECK(ranges.inside());
  ranges.end(first);
  ranges.end(first);
  CHECK(!ranges.inside());
}
