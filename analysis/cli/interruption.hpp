// SPDX-License-Identifier: Apache-2.0
// Long work that, when it is interrupted, ends with what it has.
#pragma once

#include <csignal>
#include <stdexcept>
#include <string>
#include <vector>

namespace tilescope::cli {

/// While it lives, the first SIGINT or SIGTERM is noted and ends nothing; the next one ends the process.
/// Those that the process ignores it goes on to ignore. One at a time.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  /// The signal that came; 0: none.
  static int came();

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM};
  struct sigaction before_[std::size(kSignals)]{};
};

/// The work was interrupted, and what it had is written: the process ends as the signal would have ended it.
class Interrupted : public std::runtime_error {
 public:
  Interrupted(int signal, const std::string& sentence) : std::runtime_error(sentence), signal_(signal) {}
  int signal() const { return signal_; }

 private:
  int signal_;
};

}  // namespace tilescope::cli
