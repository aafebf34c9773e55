// SPDX-License-Identifier: Apache-2.0
// What profiler/README.md shows is what the example's source says; the build compiles that where nvcc is.
#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "tests/paths.hpp"

namespace {

std::string read(const std::string& name) {
  std::ifstream file(std::string(TILESCOPE_SOURCE_DIR) + "/profiler/" + name);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The lines between the two marks, without the indentation of the function that they stand in.
std::string shown_lines(const std::string& source) {
  std::istringstream lines(source);
  std::string shown;
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("// [README") != std::string::npos) {
      inside = !inside;
    } else if (inside) {
      shown += (line.starts_with("  ") ? line.substr(2) : line) + "\n";
    }
  }
  CHECK(!inside);
  return shown;
}

}  // namespace

TEST_CASE("README.md shows the example as it is compiled") {
  const std::string shown = shown_lines(read("examples/matrix_product.cu"));
  REQUIRE(shown.find("profiler.measure(") != std::string::npos);
  CHECK(read("README.md").find("```cpp\n" + shown + "```\n") != std::string::npos);
}
