// SPDX-License-Identifier: Apache-2.0
// Loops on all threads that may throw: an exception must not leave a parallel region by itself.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

namespace tilescope {

/// The first exception of several threads.
class FirstException {
 public:
  /// Calls body(); keeps what it throws.
  template <typename Body>
  void guard(Body&& body) noexcept {
    try {
      body();
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!first_) first_ = std::current_exception();
      thrown_ = true;
    }
  }
  bool thrown() const { return thrown_; }
  /// After the threads: throws what was kept, if anything was.
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> thrown_ = false;
};

/// Calls body(i) for each i below `count`. Each thread has a copy of `body`, whose members are its own. The
/// first exception of any thread ends the loop and is thrown again at its end.
template <typename Body>
void parallel_for_each(std::int64_t count, const Body& body) {
  FirstException failure;
  std::atomic<std::int64_t> next = 0;
  const auto threads =
      static_cast<int>(std::clamp<std::int64_t>(count, 1, std::max(1, omp_get_max_threads())));
#pragma omp parallel num_threads(threads)
  failure.guard([&] {
    Body own = body;
    while (!failure.thrown()) {
      const std::int64_t i = next++;
      if (i >= count) return;
      own(i);
    }
  });
  failure.rethrow();
}

}  // namespace tilescope
