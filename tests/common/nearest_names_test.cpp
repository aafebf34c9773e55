// SPDX-License-Identifier: Apache-2.0
// What is said of a name that nobody knows: the guess first, and not a page of names.
#include "common/nearest_names.hpp"

#include <doctest/doctest.h>

namespace tilescope {

TEST_CASE("of many names those that are near are suggested, and else ten are listed") {
  std::vector<std::string> names;
  for (int i = 0; i < 25; ++i) names.push_back("name-" + std::string(1, static_cast<char>('a' + i)) + "x");
  const std::string said = unknown_name("which", "name-c", names).what();
  CAPTURE(said);
  CHECK(said == "which = 'name-c': did you mean name-cx or name-ax or name-bx?");
  const std::string listed = unknown_name("which", "zebra", names).what();
  CHECK(listed.starts_with("which = 'zebra': must be one of name-ax, name-bx"));
  CHECK(listed.ends_with("name-jx or 15 more"));
  CHECK(std::string(unknown_name("which", "ab", {"ac", "zz"}).what()) ==
        "which = 'ab': did you mean ac or zz? It must be one of ac, zz");
  CHECK(std::string(unknown_name("which", "zebra", {"a", "b"}).what()) ==
        "which = 'zebra': must be one of a, b");
}

TEST_CASE("capitals do not hide what was meant") {
  const std::vector<std::string> machines = {"a100-40gb", "h100-sxm", "h200"};
  CHECK(nearest_names("H100", machines).front() == "h100-sxm");
  CHECK(nearest_names("A100", machines).front() == "a100-40gb");
}

}  // namespace tilescope
