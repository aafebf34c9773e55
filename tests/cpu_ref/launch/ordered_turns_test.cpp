// SPDX-License-Identifier: Apache-2.0
#include "cpu_ref/launch/ordered_turns.hpp"

#include <doctest/doctest.h>

#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tilescope {
namespace {

TEST_CASE("additions to a tile happen in the order of tickets, whatever the threads do") {
  constexpr int kCtas = 400, kTiles = 7, kThreads = 5;
  OrderedTurns turns(kTiles);
  std::vector<std::vector<int>> log(kTiles);
  std::mutex mutex;
  int issued = 0;
  const auto work = [&] {
    while (true) {
      TurnTickets tickets;
      std::vector<std::int64_t> tiles;
      int cta;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (issued == kCtas) return;
        cta = issued++;
        for (std::int64_t i = 0; i < kTiles; ++i) tiles.push_back((cta + i) % kTiles);
        tickets.draw(turns, tiles);
      }
      try {
        for (std::size_t i = 0; i < tiles.size(); ++i) {
          if (cta % 50 == 49 && i == 3) throw std::runtime_error("a CTA that fails half way");
          tickets.take([&](bool first) {
            std::vector<int>& of_tile = log[static_cast<std::size_t>(tiles[i])];
            CHECK(first == of_tile.empty());
            of_tile.push_back(cta);
          });
        }
      } catch (const std::runtime_error&) {
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  for (int tile = 0; tile < kTiles; ++tile) {
    std::vector<int> expected;
    for (int cta = 0; cta < kCtas; ++cta) {
      const int position = ((tile - cta) % kTiles + kTiles) % kTiles;
      if (cta % 50 != 49 || position < 3) expected.push_back(cta);
    }
    CHECK(log[static_cast<std::size_t>(tile)] == expected);
  }
}

}  // namespace
}  // namespace tilescope
