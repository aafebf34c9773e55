// SPDX-License-Identifier: Apache-2.0
// A rank that could not go on, and who is to blame where several ended.
#pragma once

#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>

namespace tilescope {

/// The others ended because of it.
class RankFailure : public std::runtime_error {
 public:
  RankFailure(int rank, int step, const std::string& why);
  /// The failure of a process whose step is not known.
  RankFailure(int rank, const std::string& why);
  int rank() const { return rank_; }
  int step() const { return step_; }

 private:
  int rank_, step_ = 0;
};

/// The first failure of ranks that are threads.
class FirstFailure {
 public:
  /// Keeps the exception that is being handled, if it is the first.
  void keep(int rank, int step);
  /// @throws BadInput and MachineLacks as they are, anything else as a RankFailure; nothing without a failure
  void rethrow() const;

 private:
  struct Kept {
    int rank, step;
    std::exception_ptr what;
  };
  std::mutex mutex_;
  std::optional<Kept> kept_;
};

/// Runs body(rank) on a thread for each rank and waits for all of them. None begins before all have started.
/// @throws MachineLacks where a thread cannot be started; no body has run then
void run_threads(int ranks, const std::function<void(int rank)>& body);

}  // namespace tilescope
