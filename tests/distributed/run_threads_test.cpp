// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <pthread.h>

#include <atomic>

#include "common/errors.hpp"
#include "distributed/execution/rank_failure.hpp"

namespace tilescope {
namespace {

/// Stacks of new threads are larger than any address space has room for, as long as it lives.
class NoRoomForThreads {
 public:
  NoRoomForThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 46);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoRoomForThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_;
};

TEST_CASE("ranks that cannot all have a thread do not begin, and the reason is said") {
  std::atomic<int> ran = 0;
  const auto body = [&](int) { ++ran; };
  {
    const NoRoomForThreads no_room;
    CHECK_THROWS_WITH_AS(run_threads(8, body), doctest::Contains("8 ranks need a thread each"), MachineLacks);
  }
  CHECK(ran == 0);
  run_threads(8, body);
  CHECK(ran == 8);
}

}  // namespace
}  // namespace tilescope
