// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/rank_failure.hpp"

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
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace tilescope
