// SPDX-License-Identifier: Apache-2.0
#include "profiler/driver/trial_call.hpp"

#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>

namespace tilescope {

TEST_CASE("a call that ends its process is told from one that returns") {
  int here = 0;
  CHECK(returns_in_child([&here] { here = 1; }));
  CHECK(here == 0);  // it was in another process
  CHECK_FALSE(returns_in_child([] { std::raise(SIGSEGV); }));
  CHECK_FALSE(returns_in_child([] { std::_Exit(3); }));
}

}  // namespace tilescope
