// SPDX-License-Identifier: Apache-2.0
#include "common/demangle.hpp"

#include <doctest/doctest.h>

namespace tilescope {

TEST_CASE("mangled names become readable, others stay") {
  CHECK(demangle("_Z1fPi") == "f(int*)");
  CHECK(demangle("triton_poi_fused_0") == "triton_poi_fused_0");
  CHECK(demangle("_Znonsense") == "_Znonsense");
  CHECK(demangle("f") == "f");  // and not the type that is mangled so
  CHECK(demangle("").empty());
}

}  // namespace tilescope
