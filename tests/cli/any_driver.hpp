// SPDX-License-Identifier: Apache-2.0
// A driver for programs that only look whether there is one.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/paths.hpp"

namespace tilescope::testing {

/// Until it goes, programs find a driver: the one that is here, else one that knows nothing.
class AnyDriver {
 public:
  AnyDriver() {
    const char* paths = std::getenv("LD_LIBRARY_PATH");
    before_ = paths == nullptr ? "" : paths;
#ifdef TILESCOPE_FAKE_DRIVER
    setenv("LD_LIBRARY_PATH", (before_ + (before_.empty() ? "" : ":") + TILESCOPE_FAKE_DRIVER).c_str(), 1);
#endif
  }
  ~AnyDriver() { setenv("LD_LIBRARY_PATH", before_.c_str(), 1); }
  AnyDriver(const AnyDriver&) = delete;
  AnyDriver& operator=(const AnyDriver&) = delete;

 private:
  std::string before_;
};

}  // namespace tilescope::testing
