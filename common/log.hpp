// SPDX-License-Identifier: Apache-2.0
// What the program is doing, told to whoever asks: nobody, unless a program sets a sink (the command line's
// is analysis/cli/log_output.cpp). Where nothing is asked for, a line costs one comparison: its text is not
// made.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace tilescope {

/// Each level tells what those before it tell, too.
enum class LogLevel : std::uint8_t {
  off,
  error,    // why the program ends
  warning,  // what was left out, or is worth less than it looks
  info,     // commands and their progress
  debug,    // what runs: kernel, tiles, and why these
  trace,    // each launch
};

struct LogLevelName {
  LogLevel level;
  std::string_view name, summary;
};
std::span<const LogLevelName> log_levels();
/// @throws UnknownName. @param field  what the text was given as
LogLevel parse_log_level(const std::string& field, std::string_view text);

/// Called from any thread, from several at once.
using LogSink = std::function<void(LogLevel, const std::string&)>;
/// Sends lines up to `most` to `sink` from now on. Not while something may log.
void set_log(LogLevel most, LogSink sink);

bool logs(LogLevel level) noexcept;
/// Precondition: logs(level).
void write_log(LogLevel level, const std::string& line);

/// Logs what `text()` returns, if anybody asks for that level.
template <typename Text>
void log_text(LogLevel level, Text&& text) {
  if (logs(level)) write_log(level, text());
}

}  // namespace tilescope
