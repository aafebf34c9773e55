// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/command.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "analysis/cli/help/help_text.hpp"
#include "analysis/cli/options/parse_text.hpp"
#include "analysis/cli/text_table.hpp"
#include "analysis/records/files/text_file.hpp"
#include "analysis/records/run_record.hpp"
#include "common/log.hpp"

namespace tilescope::cli {
namespace {

/// run_command_line() ignores SIGPIPE, so a reader that has left shows as EPIPE and is let go.
void write_stdout(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return;
  if (errno == EPIPE) return;
  throw MachineLacks(fmt::format("standard output cannot be written ({})", std::strerror(errno)));
}

bool colours_wanted() {
  const char* const no_color = std::getenv("NO_COLOR");  // https://no-color.org: set and not empty
  const char* const terminal = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == 0) &&
         (terminal == nullptr || std::string_view(terminal) != "dumb");
}

/// Failures red, what passed or was gained green, commands bold: on whole words, so that columns stay where
/// they are.
std::string coloured(std::string_view text) {
  struct Look {
    std::string_view opens, code;
  };
  constexpr Look kLines[] = {{"FAIL ", "31"}, {"ok   ", "32"}, {"$ ./tilescope ", "1"}};
  constexpr std::string_view kRegression = "REGRESSION", kGain = "  gain";
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, end));
    for (const Look& look : kLines) {
      if (!line.starts_with(look.opens)) continue;
      const std::size_t word = look.code == "1" ? line.size() : look.opens.find(' ');
      line = fmt::format("\033[{}m{}\033[0m{}", look.code, line.substr(0, word), line.substr(word));
    }
    if (line.ends_with(kGain)) line.insert(line.size() - 4, "\033[32m").append("\033[0m");
    if (const std::size_t at = line.find(kRegression); at != std::string::npos) {
      line.insert(at + kRegression.size(), "\033[0m");
      line.insert(at, "\033[31m");
    }
    out += line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return out;
}

}  // namespace

void ProgressLine::clear() {
  if (shown) std::fputs("\r\033[K", stderr);
  shown = false;
}

void CommandContext::print(const Output& output) const {
  if (quiet || json == "-") return;
  std::string out, err;
  const std::optional<std::size_t> columns = known_columns(STDOUT_FILENO);
  const auto for_terminal = [&](const std::string& text) {
    return columns && format == TableFormat::text ? fitted(text, *columns) : text;
  };
  for (const auto& piece : output.pieces()) {
    if (const auto* const table = std::get_if<Table>(&piece)) {
      out += for_terminal(to_text(*table, format, *csv_heading));
    } else {
      const auto& sentence = std::get<std::string>(piece);
      const bool for_people = format == TableFormat::text || format == TableFormat::markdown;
      const bool empty = sentence.find_first_not_of('\n') == std::string::npos;  // between tables
      if (for_people || !empty) (for_people ? out : err) += for_terminal(sentence);
    }
  }
  const std::lock_guard<std::mutex> lock(progress_line->mutex);
  progress_line->clear();
  std::fputs(err.c_str(), stderr);
  write_stdout(colours_wanted() ? coloured(out) : out);
}

void CommandContext::print_as_it_is(std::string_view text) const {
  if (quiet || json == "-") return;
  const std::lock_guard<std::mutex> lock(progress_line->mutex);
  progress_line->clear();
  write_stdout(text);
}

void CommandContext::write_json(std::string_view text) const {
  if (wants_json()) write_file_atomically("--json", json, text);
}

void CommandContext::write_record(const RunRecord& record) const {
  if (wants_json()) write_json(to_json_text(raw ? record : without_samples(record)));
}

void add_raw_option(CLI::App& command, CommandContext& context) {
  command.add_flag(
      "--raw", context.raw,
      "keep every sample of each time in the record, not only number, median, minimum and noise");
}

void add_format_option(CLI::App& command, CommandContext& context) {
  command
      .add_option_function<std::string>(
          "--format", [&context](const std::string& name) { context.format = parse_table_format(name); },
          "of tables, for other tools: csv has every digit, and units in the headings; with csv and latex "
          "sentences go to standard error")
      ->type_name("text|markdown|csv|latex")
      ->group(kOutputGroup);
}

CLI::App& add_command(CLI::App& app, CommandContext& context, const std::string& name,
                      const std::string& summary, std::function<int()> action) {
  CLI::App& command = *app.add_subcommand(name, summary)->group(kCommandsGroup);
  const auto set_json = [&context](const std::string& path) {
    if (path.empty()) throw BadInput("--json", "''", "must be a path that can be written, or -");
    context.json = path;
  };
  command
      .add_option_function<std::string>("--json", set_json,
                                        "write the record to FILE, or to standard output for -")
      ->type_name("FILE|-")
      ->group(kOutputGroup);
  command.add_flag("--quiet", context.quiet, "print no text; the exit code tells")->group(kOutputGroup);
  add_value(command, "--log-level", context.log.level, "LEVEL",
            "tell on standard error what happens (tilescope list log-levels); else $TILESCOPE_LOG_LEVEL",
            kOutputGroup);
  add_value(command, "--log-file", context.log.file, "FILE",
            "add it to FILE, at level debug unless --log-level is given; else $TILESCOPE_LOG_FILE",
            kOutputGroup);
  command.get_help_ptr()->group(kOutputGroup);
  command.final_callback([&context, action = std::move(action)] { context.action = action; });
  return command;
}

void add_commands(CLI::App& app, CommandContext& context, CommandRunner run) {
  add_demo_command(app, context, run);
  add_verify_command(app, context);
  add_simulate_command(app, context);
  add_compare_command(app, context);
  add_study_command(app, context);
  add_run_command(app, context);
  add_bench_command(app, context);
  add_profile_command(app, context);
  add_emulate_command(app, context);
  add_ceilings_command(app, context);
  add_report_command(app, context);
  add_record_command(app, context);
  add_explain_command(app, context);
  add_diff_command(app, context);
  add_list_command(app, context);
  add_help_commands(app, context, run);
}

Progress::Progress(const CommandContext& context, std::string what, std::int64_t total)
    : line_(*context.progress_line),
      what_(std::move(what)),
      total_(total),
      wanted_(!context.quiet && !log_on_terminal() && isatty(STDERR_FILENO) != 0) {
  if (!wanted_) return;
  redraws_ = std::jthread([this](const std::stop_token& stop) {
    constexpr std::chrono::milliseconds kRedrawn{500};
    std::unique_lock<std::mutex> lock(line_.mutex);
    while (!ended_.wait_for(lock, stop, kRedrawn, [&stop] { return stop.stop_requested(); })) draw();
  });
}

Progress::~Progress() {
  if (!wanted_) return;
  redraws_.request_stop();
  redraws_.join();
  const std::lock_guard<std::mutex> lock(line_.mutex);
  line_.clear();
}

/// "study block-size 3/15 cpu:flash2 B4 H16 ..., 12 s"
std::string Progress::text() const {
  std::string text = what_;
  if (total_ > 0) text += fmt::format(" {}/{}", done_, total_);
  if (!detail_.empty()) text += " " + detail_;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began_).count();
  const std::size_t most = terminal_columns(STDERR_FILENO).value_or(80) - 1;  // a wrapped line would stay
  if (seconds < 1) return text.substr(0, most);
  const std::string elapsed = fmt::format(", {} s", seconds);
  return text.substr(0, most - std::min(elapsed.size(), most)) + elapsed;
}

void Progress::draw() {
  std::fputs(("\r\033[K" + text()).c_str(), stderr);  // nothing to throw on a thread of its own
  line_.shown = true;
  drawn_ = Clock::now();
}

void Progress::step(std::string_view detail) {
  constexpr std::chrono::milliseconds kTooSoonToSee{50};
  const auto now = Clock::now();
  std::unique_lock<std::mutex> lock(line_.mutex);
  ++done_;
  detail_ = detail;
  if (wanted_ && now - drawn_ >= kTooSoonToSee) draw();
  lock.unlock();
  if (!logs(LogLevel::info) || (done_ > 1 && done_ < total_ && now - logged_ < std::chrono::seconds(1)))
    return;
  logged_ = now;
  const std::string total = total_ > 0 ? fmt::format("/{}", total_) : "";
  write_log(LogLevel::info,
            fmt::format("{} {}{}{}{}", what_, done_, total, detail.empty() ? "" : " ", detail));
}

}  // namespace tilescope::cli
