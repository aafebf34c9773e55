// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/interruption.hpp"

#include <unistd.h>

#include <string_view>

namespace tilescope::cli {
namespace {

volatile std::sig_atomic_t& noted() {
  static volatile std::sig_atomic_t signal = 0;
  return signal;
}

extern "C" void note(int signal) {
  constexpr std::string_view kLine = "\ntilescope: ends with what is complete; once more: at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kLine.data(), kLine.size());
  noted() = signal;
}

}  // namespace

Interruption::Interruption() {
  noted() = 0;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

int Interruption::came() { return noted(); }

}  // namespace tilescope::cli
