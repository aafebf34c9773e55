// SPDX-License-Identifier: Apache-2.0
// Long work beside Python: on a thread of its own, so that Ctrl-C reaches it, others may run meanwhile, and a
// forked child does not wait for OpenMP threads that only its parent has.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <variant>

namespace tilescope::python {

/// What the work says of itself, and what it is told.
class Watch {
 public:
  explicit Watch(std::int64_t total) : total_(total) {}
  /// One more is done. Called from any thread. @throws Stopped when the caller wants no more
  void step(std::int64_t done = 1);
  /// @throws Stopped
  void check() const;
  void stop() { stopped_ = true; }
  std::int64_t done() const { return done_; }
  std::int64_t total() const { return total_; }

  struct Stopped {};

 private:
  std::atomic<std::int64_t> done_ = 0;
  std::int64_t total_;
  std::atomic<bool> stopped_ = false;
};

/// Runs `work` without the GIL and waits for it. Meanwhile signals are looked for, and `progress(done,
/// total)` is called now and then unless it is None; an exception of either ends the work and is thrown on.
void run_watched(Watch& watch, const nanobind::object& progress, const std::function<void()>& work);

/// Runs `work` without the GIL: here, or in a forked child on a thread of its own.
void run_without_gil(const std::function<void()>& work);

/// `function` as Python is to call it: run without the GIL.
template <typename Result, typename... Arguments>
auto without_gil(Result (*function)(Arguments...)) {
  return [function](Arguments... arguments) {
    std::conditional_t<std::is_void_v<Result>, std::monostate, std::optional<Result>> result;
    run_without_gil([&] {
      if constexpr (std::is_void_v<Result>) {
        function(arguments...);
      } else {
        result = function(arguments...);
      }
    });
    if constexpr (!std::is_void_v<Result>) return *std::move(result);
  };
}

/// Says when this process forks. Once, when the module is loaded.
void notice_forks();

}  // namespace tilescope::python
