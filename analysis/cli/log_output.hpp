// SPDX-License-Identifier: Apache-2.0
// Where `tilescope` writes its log: standard error, a file, both, or nowhere.
#pragma once

#include <optional>
#include <string>

namespace tilescope::cli {

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

/// Whether log lines go to standard error, where they would tear a line of progress.
bool log_on_terminal();

}  // namespace tilescope::cli
