// SPDX-License-Identifier: Apache-2.0
// What all subcommands share: their common options, their output, their exit codes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "analysis/cli/output.hpp"
#include "common/errors.hpp"

namespace CLI {
class App;
}
namespace tilescope {
struct RunRecord;
}

namespace tilescope::cli {

/// Work that takes longer says so before it begins. [seconds]
inline constexpr double kWorthSaying = 10;

/// As given on the command line; what is not given there may stand in the environment.
struct LogOptions {
  std::optional<std::string> level;  // --log-level, else TILESCOPE_LOG_LEVEL
  std::optional<std::string> file;   // --log-file, else TILESCOPE_LOG_FILE
};

/// Opens the log that the options ask for. With a level alone it goes to standard error, with a file alone to
/// the file at level debug, with both to both. Lines bear the time (UTC) and the level; a file is added to.
/// Errors go to the file alone: standard error has them anyway.
/// @throws BadInput for a level that there is not, and a file that cannot be written
void open_log(const LogOptions& options);

/// What the log's file could not take, as a sentence; nothing where it took every line.
std::optional<std::string> log_failure();

/// Whether log lines go to standard error, where they would tear a line of progress.
bool log_on_terminal();

/// How `tilescope` ends.
enum ExitCode : int {
  kFine = 0,
  kCheckFailed = 1,    // a mismatch, a regression
  kBadInput = 2,       // BadInput: nothing was written
  kMachineLacks = 3,   // MachineLacks, or out of memory
  kInternalError = 70  // a defect of TileScope
};

/// The terminal's last line, which progress and text share.
struct ProgressLine {
  std::mutex mutex;
  bool shown = false;  // progress stands there

  /// Precondition: the caller holds the mutex.
  void clear();
};

/// The command line as typed, the options that every command has, and where its output goes.
struct CommandContext {
  std::vector<std::string> argv;  // for records
  bool quiet = false;             // no text on standard output
  std::string json;               // where the record goes: "" nowhere, "-" standard output, else a file
  std::function<int()> action;    // the chosen command; returns an ExitCode
  std::shared_ptr<ProgressLine> progress_line = std::make_shared<ProgressLine>();

  bool raw = false;  // records keep every sample
  TableFormat format = TableFormat::text;
  std::shared_ptr<std::string> csv_heading = std::make_shared<std::string>();  // of the last table
  LogOptions log;

  bool wants_json() const { return !json.empty(); }
  /// For people, on standard output; nothing with --quiet or `--json -`. With --format csv or latex only the
  /// tables go there, and the sentences to standard error. A reader that has left (`| head -1`) is no error:
  /// the work goes on, so that files and the exit code stay true.
  /// Lines fit the terminal, or $COLUMNS.
  void print(const Output& output) const;
  /// The same of what programs read: JSON, a script.
  void print_as_it_is(std::string_view text) const;
  /// A record to where --json says, whole or not at all; nothing without --json.
  void write_json(std::string_view text) const;
  /// The same; without the samples of times unless --raw.
  void write_record(const RunRecord& record) const;
};

/// Adds subcommand `name` with --help, --json and --quiet. run_command_line() calls `action` after all
/// options are parsed and the --json target is known to be writable.
CLI::App& add_command(CLI::App& app, CommandContext& context, const std::string& name,
                      const std::string& summary, std::function<int()> action);

/// --raw, of commands that take times.
void add_raw_option(CLI::App& command, CommandContext& context);

/// --format, of commands that print tables.
void add_format_option(CLI::App& command, CommandContext& context);

/// Progress of long work: one line on standard error that rewrites itself, with the seconds that it took so
/// far, and makes way for what is printed. Nothing in a pipe or with --quiet. Steps are logged too, at most
/// one a second.
class Progress {
 public:
  /// @param total steps; 0 where nobody can count them
  Progress(const CommandContext& context, std::string what, std::int64_t total = 0);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Clears the line.
  ~Progress();
  /// One more of `total` is done. `detail` says which comes next.
  void step(std::string_view detail = {});

 private:
  using Clock = std::chrono::steady_clock;
  std::string text() const;
  void draw();

  ProgressLine& line_;
  std::string what_, detail_;
  std::int64_t total_, done_ = 0;
  bool wanted_;
  Clock::time_point began_ = Clock::now(), drawn_{}, logged_{};
  std::condition_variable_any ended_;
  std::jthread redraws_;  // while no step is done; last: it uses the others
};

/// Runs a whole command line, `tilescope` first, and returns its exit code.
using CommandRunner = int (*)(const std::vector<std::string>& argv);

/// All subcommands, in the order in which --help lists them.
void add_commands(CLI::App& app, CommandContext& context, CommandRunner run);

// One a subcommand, each in the file of its name.
void add_bench_command(CLI::App& app, CommandContext& context);
void add_ceilings_command(CLI::App& app, CommandContext& context);
void add_compare_command(CLI::App& app, CommandContext& context);
void add_demo_command(CLI::App& app, CommandContext& context, CommandRunner run);
void add_diff_command(CLI::App& app, CommandContext& context);
void add_emulate_command(CLI::App& app, CommandContext& context);
void add_explain_command(CLI::App& app, CommandContext& context);
void add_help_commands(CLI::App& app, CommandContext& context, CommandRunner run);
void add_list_command(CLI::App& app, CommandContext& context);
void add_profile_command(CLI::App& app, CommandContext& context);
void add_record_command(CLI::App& app, CommandContext& context);
void add_report_command(CLI::App& app, CommandContext& context);
void add_run_command(CLI::App& app, CommandContext& context);
void add_simulate_command(CLI::App& app, CommandContext& context);
void add_study_command(CLI::App& app, CommandContext& context);
void add_verify_command(CLI::App& app, CommandContext& context);

}  // namespace tilescope::cli
