// SPDX-License-Identifier: Apache-2.0
// Programs that this one starts: one to talk to, or one to wait for with all that it starts.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tilescope {

struct ProcessStart {
  std::vector<std::string> command;  // the program, looked for on the PATH, and its arguments
  std::vector<std::pair<std::string, std::string>> variables;  // set anew in its environment
  std::optional<int> input, output;  // descriptors for its standard streams, where they are not ours
};

/// @throws std::system_error if the program cannot be started
pid_t start_process(const ProcessStart& start);

/// A command in our place: it has our standard streams and gets our signals, one sent to this process alone
/// too. What it started and left behind can be ended with it. One at a time.
class ForegroundCommand {
 public:
  /// @throws std::system_error if the program cannot be started
  explicit ForegroundCommand(const ProcessStart& start);
  ~ForegroundCommand();
  ForegroundCommand(const ForegroundCommand&) = delete;
  ForegroundCommand& operator=(const ForegroundCommand&) = delete;

  /// @returns the wait status once the command has ended; does not wait
  std::optional<int> ended();
  /// Ends the command and all that descends from it, first by request, after five seconds by force.
  /// @returns the command's wait status
  int end();

 private:
  std::shared_ptr<void> signals_, subreaper_;  // while they live, what the .cpp file says of them holds
  pid_t child_ = 0;
};

}  // namespace tilescope
