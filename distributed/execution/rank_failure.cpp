// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/rank_failure.hpp"

#include <future>
#include <thread>
#include <vector>

#include "common/errors.hpp"

namespace tilescope {

RankFailure::RankFailure(int rank, int step, const std::string& why)
    : std::runtime_error("rank " + std::to_string(rank) + " failed in step " + std::to_string(step) + ": " +
                         why),
      rank_(rank),
      step_(step) {}

RankFailure::RankFailure(int rank, const std::string& why)
    : std::runtime_error("rank " + std::to_string(rank) + " failed: " + why), rank_(rank) {}

void FirstFailure::keep(int rank, int step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!kept_) kept_ = {rank, step, std::current_exception()};
}

void FirstFailure::rethrow() const {
  if (!kept_) return;
  try {
    std::rethrow_exception(kept_->what);
  } catch (const BadInput&) {
    throw;
  } catch (const MachineLacks&) {
    throw;
  } catch (const RankFailure&) {
    throw;
  } catch (const std::exception& error) {
    throw RankFailure(kept_->rank, kept_->step, error.what());
  } catch (...) {
    throw RankFailure(kept_->rank, kept_->step, "unknown exception");
  }
}

void run_threads(int ranks, const std::function<void(int rank)>& body) {
  std::promise<bool> all_started;
  const std::shared_future<bool> go = all_started.get_future();
  std::vector<std::thread> threads;
  std::string lacks;
  try {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        if (go.get()) body(rank);
      });
    }
  } catch (const std::exception& error) {  // std::system_error or std::bad_alloc
    lacks = error.what();
  }
  all_started.set_value(lacks.empty());
  const std::size_t started = threads.size();
  for (std::thread& thread : threads) thread.join();
  if (lacks.empty()) return;
  throw MachineLacks(std::to_string(ranks) + " ranks need a thread each, and only " +
                     std::to_string(started) + " could be started (" + lacks +
                     "); fewer ranks, or a higher limit of memory or threads, "
                     "would do");
}

}  // namespace tilescope
