// SPDX-License-Identifier: Apache-2.0
#include "emulator/machine/happens_before.hpp"

#include <doctest/doctest.h>

#include <numeric>

namespace tilescope::gpu::emulator::happens_before_test {

constexpr std::uint32_t kThreads = 64, kBarrier = 3;
constexpr HappensBefore::Meeting kEmpty = HappensBefore::kMbarrier + 8;

std::vector<std::uint32_t> warp(std::uint32_t index) {
  std::vector<std::uint32_t> threads(32);
  std::iota(threads.begin(), threads.end(), 32 * index);
  return threads;
}

TEST_CASE("emulator: a write and a read without a barrier between them race, with one they do not") {
  constexpr std::uint32_t kBegin = ptx::kSharedBegin;
  ptx::Kernel kernel;
  ptx::Variable& tile = kernel.shared.emplace_back();
  tile.name = "tile";
  tile.type = ptx::Type::f32;
  tile.bytes = 64;
  tile.offset = kBegin + 8;
  HappensBefore order(kThreads, kBegin + 256, &kernel);
  order.write(0, kBegin + 16, 16, 1);
  order.read(1, kBegin + 28, 4, 2);
  REQUIRE(order.races().size() == 1);
  CHECK(order.races()[0].text ==
        "byte 28 of shared memory (tile[5]): thread 0 writes at PTX line 1, thread 1 reads at PTX line 2, "
        "and nothing "
        "orders the two");
  order.read(1, kBegin + 28, 4, 2);  // said once
  order.read(1, kBegin + 12, 4, 3);  // beside it
  order.join(warp(0));
  order.read(1, kBegin + 16, 4, 4);
  order.write(2, kBegin + 12, 4, 5);
  CHECK(order.races().size() == 1);
  order.write(40, kBegin + 16, 4, 6);  // of the other warp: with the write, and with the read
  CHECK(order.races().size() == 3);
}

TEST_CASE("emulator: threads of one word's bytes do not race") {
  HappensBefore order(kThreads, 256);
  for (std::uint32_t thread = 0; thread < 4; ++thread) order.write(thread, 8 + thread, 1, 1);
  CHECK(order.races().empty());
  order.write(5, 10, 2, 2);
  CHECK(order.races().size() == 1);
}

TEST_CASE("emulator: one lane that arrives for its warp needs the others joined to it") {
  for (const bool joined : {false, true}) {
    HappensBefore order(kThreads, 256);
    for (std::uint32_t lane = 0; lane < 32; ++lane) order.read(lane, 4 * lane, 4, 1);
    if (joined) order.join(warp(0));
    order.arrive(kEmpty, 0);
    order.complete(kEmpty);
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      order.acquire(kEmpty, 32 + lane);
      order.write(32 + lane, 4 * lane, 4, 2);
    }
    CHECK(order.races().empty() == joined);
  }
}

TEST_CASE("emulator: an arrival in a phase that is not over orders nothing") {
  HappensBefore order(kThreads, 256);
  order.read(0, 0, 4, 1);
  order.arrive(kEmpty, 0);
  order.acquire(kEmpty, 40);
  order.write(40, 0, 4, 2);
  CHECK(order.races().size() == 1);
}

TEST_CASE("emulator: what follows an arrival is not ordered by it") {
  HappensBefore order(kThreads, 256);
  order.arrive(kBarrier, 0);
  order.write(0, 0, 4, 1);
  order.complete(kBarrier);
  order.acquire(kBarrier, 40);
  order.read(40, 0, 4, 2);
  CHECK(order.races().size() == 1);
}

TEST_CASE("emulator: copies are ordered by the barrier that counts them") {
  const std::uint32_t issuer[] = {0};
  for (const bool waited : {false, true}) {
    HappensBefore order(kThreads, 256);
    const std::uint32_t copies = order.agent("copies");
    const auto issued = order.issue(issuer);
    order.write(copies, 1, issued, 0, 64, 1);
    order.arrive(kEmpty, copies, 1, issued);
    order.complete(kEmpty);
    if (waited) order.acquire(kEmpty, 33);
    order.read(33, 32, 4, 2);
    CHECK(order.races().empty() == waited);
  }
}

TEST_CASE("emulator: products read until they are awaited, and only what was there when they were issued") {
  for (const bool waited : {false, true}) {
    HappensBefore order(kThreads, 256);
    order.write(1, 0, 64, 1);
    order.join(warp(0));
    const std::uint32_t products = order.agent("products of warp 0");
    const auto issued = order.issue(warp(0));
    order.read(products, 1, issued, 0, 64, 2);
    CHECK(order.races().empty());
    if (waited) order.await(5, products, 1);
    order.write(5, 0, 4, 3);
    CHECK(order.races().empty() == waited);
  }
  HappensBefore order(kThreads, 256);
  const std::uint32_t products = order.agent("products of warp 0");
  const auto issued = order.issue(warp(0));
  order.write(1, 0, 4, 1);  // after the issue, before the products read
  order.read(products, 1, issued, 0, 64, 2);
  CHECK(order.races().size() == 1);
}

}  // namespace tilescope::gpu::emulator::happens_before_test
