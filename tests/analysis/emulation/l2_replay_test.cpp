// SPDX-License-Identifier: Apache-2.0
#include "analysis/emulation/l2_replay.hpp"

#include <doctest/doctest.h>

namespace tilescope::l2_replay_test {

using gpu::emulator::L2Access;
using gpu::emulator::L2Request;

constexpr std::uint64_t kMiB = 1 << 20, kBase = 7 * kMiB + 4096;

/// An L2 of 256 KiB, all of whose sets are replayed, and a buffer.
struct Replayed {
  std::int64_t sms = 1;
  std::uint64_t bytes = kMiB;
  std::uint64_t every = 1;  // sector of the buffer
  L2Replay replay{{.partition_bytes = 128 * 8 * 128, .ways = 8, .sm_groups = {{static_cast<int>(sms), 0}}},
                  sms,
                  {{kBase, bytes}}};

  /// CTAs 0 ... count - 1, each of which goes over the whole buffer.
  L2Replay::Again by(std::uint32_t count, L2Access access) {
    for (std::uint32_t cta = 0; cta < count; ++cta) {
      std::vector<L2Request> requests;
      std::uint64_t turn = 0;
      for (std::uint64_t sector = 0; sector < bytes / 32; sector += every)
        requests.push_back({kBase / 32 + sector, turn++, access});
      replay.add(cta, turn, std::move(requests));
    }
    return replay.again();
  }
};

TEST_CASE(
    "emulation: CTAs one after the other read what the L2 cannot keep again, and nothing of what it keeps") {
  CHECK(Replayed{}.by(3, L2Access::load).read_bytes == 2 * kMiB);
  CHECK(Replayed{.bytes = 64 << 10}.by(3, L2Access::load).read_bytes == 0);
  CHECK(Replayed{}.by(1, L2Access::load).read_bytes == 0);
  CHECK(Replayed{}.by(3, L2Access::load).written_bytes == 0);
}

TEST_CASE("emulation: CTAs that are there at once share what one of them fetched") {
  CHECK(Replayed{.sms = 3}.by(3, L2Access::load).read_bytes == 0);
  CHECK(Replayed{.sms = 3}.by(6, L2Access::load).read_bytes == kMiB);
  Replayed two_an_sm;
  two_an_sm.replay.begin(2);
  CHECK(two_an_sm.by(2, L2Access::load).read_bytes == 0);
}

TEST_CASE("emulation: of a line that is fetched again, the sectors count that were asked for") {
  CHECK(Replayed{.every = 4}.by(3, L2Access::load).read_bytes == 2 * kMiB / 4);
  CHECK(Replayed{.every = 2}.by(3, L2Access::store).written_bytes == 2 * kMiB / 2);
}

TEST_CASE(
    "emulation: stores are written back each time that the L2 could not keep them, updates fetched too") {
  const L2Replay::Again stored = Replayed{}.by(3, L2Access::store);
  CHECK(stored.read_bytes == 0);
  CHECK(stored.written_bytes == 2 * kMiB);
  const L2Replay::Again updated = Replayed{}.by(3, L2Access::update);
  CHECK(updated.read_bytes == 2 * kMiB);
  CHECK(updated.written_bytes == 2 * kMiB);
}

TEST_CASE("emulation: of a large L2 a sample of the sets stands for all") {
  const std::vector<SmGroup> groups{{1, 0}};
  constexpr std::uint64_t kBytes = 24 * kMiB;
  L2Replay replay({.partition_bytes = 4 * kMiB, .ways = 16, .sm_groups = groups}, 1, {{kBase, kBytes}});
  CHECK_FALSE(replay.wants(kBase / 32 - 1));
  CHECK_FALSE(replay.wants((kBase + kBytes) / 32));
  for (std::uint32_t cta = 0; cta < 2; ++cta) {
    std::vector<L2Request> requests;
    for (std::uint64_t sector = kBase / 32; sector < (kBase + kBytes) / 32; ++sector) {
      if (replay.wants(sector)) requests.push_back({sector, sector - kBase / 32, L2Access::load});
    }
    CHECK(requests.size() > kBytes / 32 / 20);
    CHECK(requests.size() < kBytes / 32 / 10);
    replay.add(cta, kBytes / 32, std::move(requests));
  }
  CHECK(replay.again().read_bytes == doctest::Approx(kBytes).epsilon(0.02));
}

}  // namespace tilescope::l2_replay_test
