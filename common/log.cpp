// SPDX-License-Identifier: Apache-2.0
#include "common/log.hpp"

#include <atomic>
#include <utility>
#include <vector>

#include "common/nearest_names.hpp"

namespace tilescope {
namespace {

constexpr LogLevelName kLevels[] = {
    {LogLevel::off, "off", "nothing"},
    {LogLevel::error, "error", "why the program ends"},
    {LogLevel::warning, "warning", "what was left out, or is worth less than it looks"},
    {LogLevel::info, "info", "commands and their progress"},
    {LogLevel::debug, "debug", "what runs: kernel, tiles, and why these"},
    {LogLevel::trace, "trace", "each launch"}};

struct Log {
  std::atomic<LogLevel> most = LogLevel::off;
  LogSink sink;
};

Log& the_log() {
  static Log log;
  return log;
}

}  // namespace

std::span<const LogLevelName> log_levels() { return kLevels; }

LogLevel parse_log_level(const std::string& field, std::string_view text) {
  return find_named(kLevels, field, text).level;
}

void set_log(LogLevel most, LogSink sink) {
  Log& log = the_log();
  log.most = LogLevel::off;
  log.sink = std::move(sink);
  if (log.sink) log.most = most;
}

bool logs(LogLevel level) noexcept { return level <= the_log().most.load(std::memory_order_relaxed); }

void write_log(LogLevel level, const std::string& line) { the_log().sink(level, line); }

}  // namespace tilescope
