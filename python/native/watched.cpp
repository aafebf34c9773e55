// SPDX-License-Identifier: Apache-2.0
#include "python/native/watched.hpp"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace nb = nanobind;

namespace tilescope::python {
namespace {

constexpr std::chrono::milliseconds kLookEvery{50};

std::atomic<bool> in_forked_child = false;

/// Work on a thread of its own, which ends before this object does.
class OwnThread {
 public:
  explicit OwnThread(const std::function<void()>& work)
      : thread_([this, &work] {
          std::exception_ptr failure;
          try {
            work();
          } catch (...) {
            failure = std::current_exception();
          }
          const std::lock_guard<std::mutex> lock(mutex_);
          failure_ = failure;
          ended_ = true;
          ended_or_not_.notify_all();
        }) {}
  ~OwnThread() { thread_.join(); }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

  bool ended_within(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex_);
    return ended_or_not_.wait_for(lock, time, [this] { return ended_; });
  }
  /// Of the work, once it has ended.
  std::exception_ptr failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::condition_variable ended_or_not_;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

/// Lets Python handle signals and show progress. @throws nb::python_error
void look_round(const Watch& watch, const nb::object& progress) {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
  if (!progress.is_none()) progress(watch.done(), watch.total());
}

}  // namespace

void Watch::step(std::int64_t done) {
  done_ += done;
  check();
}

void Watch::check() const {
  if (stopped_) throw Stopped();
}

void run_watched(Watch& watch, const nb::object& progress, const std::function<void()>& work) {
  std::exception_ptr failure;
  {
    const nb::gil_scoped_release released;
    OwnThread thread(work);
    while (!thread.ended_within(kLookEvery)) {
      if (failure) continue;
      try {
        look_round(watch, progress);
      } catch (...) {
        failure = std::current_exception();
        watch.stop();
      }
    }
    if (!failure) failure = thread.failure();
  }
  if (failure) std::rethrow_exception(failure);
  if (!progress.is_none()) progress(watch.total(), watch.total());
}

void run_without_gil(const std::function<void()>& work) {
  const nb::gil_scoped_release released;
  if (!in_forked_child) {
    work();
    return;
  }
  std::exception_ptr failure;
  {
    OwnThread thread(work);
    while (!thread.ended_within(kLookEvery)) {
    }
    failure = thread.failure();
  }
  if (failure) std::rethrow_exception(failure);
}

void notice_forks() {
  pthread_atfork(nullptr, nullptr, [] { in_forked_child = true; });
}

}  // namespace tilescope::python
