// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/command.hpp"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <atomic>
#include <cstdlib>
#include <memory>

#include "analysis/records/files/text_file.hpp"
#include "common/errors.hpp"
#include "common/log.hpp"

namespace tilescope::cli {
namespace {

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::trace:
      return spdlog::level::trace;
    default:
      return spdlog::level::off;
  }
}

/// A logger that writes each line at once, so that what ends the program is there.
std::shared_ptr<spdlog::logger> logger_of(spdlog::sink_ptr sink) {
  auto logger = std::make_shared<spdlog::logger>("tilescope", std::move(sink));
  logger->set_formatter(std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %^%-7l%$ %v",
                                                                    spdlog::pattern_time_type::utc));
  logger->set_level(spdlog::level::trace);
  logger->flush_on(spdlog::level::trace);
  return logger;
}

std::optional<std::string> given_or_variable(const std::optional<std::string>& given, const char* variable) {
  if (given) return given;
  const char* value = std::getenv(variable);
  return value && *value ? std::optional<std::string>(value) : std::nullopt;
}

struct Outputs {
  std::shared_ptr<spdlog::logger> terminal, file;
  std::atomic<bool> file_failed = false;
  std::string file_text;  // "--log-file = PATH"
};

Outputs& outputs() {
  static Outputs open;
  return open;
}

}  // namespace

void open_log(const LogOptions& options) {
  const auto level_text = given_or_variable(options.level, "TILESCOPE_LOG_LEVEL");
  const auto path = given_or_variable(options.file, "TILESCOPE_LOG_FILE");
  const char* field = options.level ? "--log-level" : "TILESCOPE_LOG_LEVEL";
  const LogLevel level = level_text ? parse_log_level(field, *level_text)
                         : path     ? LogLevel::debug
                                    : LogLevel::off;
  outputs().terminal = outputs().file = nullptr;
  outputs().file_failed = false;
  if (level == LogLevel::off) return set_log(LogLevel::off, nullptr);
  if (level_text) outputs().terminal = logger_of(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (path) {
    const char* file_field = options.file ? "--log-file" : "TILESCOPE_LOG_FILE";
    require_writable_file(file_field, *path);
    try {
      outputs().file = logger_of(std::make_shared<spdlog::sinks::basic_file_sink_mt>(*path));
      outputs().file->set_error_handler([](const std::string&) { outputs().file_failed = true; });
      outputs().file_text = std::string(file_field) + " = " + *path;
    } catch (const spdlog::spdlog_ex& error) {
      throw BadInput(file_field, *path, error.what());
    }
  }
  set_log(level, [](LogLevel of_line, const std::string& line) {
    Outputs& open = outputs();
    if (open.terminal && of_line != LogLevel::error) open.terminal->log(spdlog_level(of_line), line);
    if (open.file) open.file->log(spdlog_level(of_line), line);
  });
}

std::optional<std::string> log_failure() {
  if (!outputs().file_failed) return std::nullopt;
  return outputs().file_text + " cannot be written: make room, or name another place";
}

bool log_on_terminal() { return outputs().terminal != nullptr; }

}  // namespace tilescope::cli
