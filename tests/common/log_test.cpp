// SPDX-License-Identifier: Apache-2.0
#include "common/log.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "common/errors.hpp"

using namespace tilescope;

TEST_CASE("lines up to the level that is asked for reach the sink, the text of others is not made") {
  std::vector<std::string> lines;
  int made = 0;
  const auto log = [&](LogLevel level, const std::string& text) {
    log_text(level, [&] {
      ++made;
      return text;
    });
  };
  log(LogLevel::error, "nobody listens");
  set_log(LogLevel::info, [&](LogLevel, const std::string& line) { lines.push_back(line); });
  for (const LogLevelName& level : log_levels()) {
    if (level.level != LogLevel::off) log(level.level, std::string(level.name));
  }
  set_log(LogLevel::off, nullptr);
  log(LogLevel::error, "nobody any more");
  CHECK(lines == std::vector<std::string>{"error", "warning", "info"});
  CHECK(made == 3);
}

TEST_CASE("levels by name, others are refused with the nearest") {
  for (const LogLevelName& level : log_levels()) CHECK(parse_log_level("x", level.name) == level.level);
  CHECK_THROWS_AS(parse_log_level("--log-level", "verbose"), UnknownName);
}
