// SPDX-License-Identifier: Apache-2.0
#include "distributed/execution/exchange.hpp"

#include <algorithm>

namespace tilescope {

Exchange::Exchange(int ranks, std::chrono::milliseconds time_limit)
    : bytes_(static_cast<std::size_t>(ranks)),
      idle_(static_cast<std::size_t>(ranks)),
      time_limit_(time_limit),
      last_progress_(Clock::now()) {}

void Exchange::send(int from, int operation, Message message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_[static_cast<std::size_t>(from)].sent += static_cast<std::int64_t>(message.size());
  messages_[operation] = std::move(message);
  changed_.notify_all();
}

Exchange::Outcome Exchange::receive(int to, int operation, Message& message) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto rank = static_cast<std::size_t>(to);
  for (;;) {
    if (failed_) return Outcome::another_failed;
    if (const auto found = messages_.find(operation); found != messages_.end()) {
      message = std::move(found->second);
      messages_.erase(found);
      idle_[rank] = false;
      bytes_[rank].received += static_cast<std::int64_t>(message.size());
      return Outcome::arrived;
    }
    const Clock::time_point deadline = last_progress_ + time_limit_;
    if (Clock::now() >= deadline) return Outcome::nobody_moves;
    idle_[rank] = true;
    changed_.wait_until(lock, deadline);
  }
}

int Exchange::running_rank() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto running = std::find(idle_.begin(), idle_.end(), false);
  return running == idle_.end() ? -1 : static_cast<int>(running - idle_.begin());
}

void Exchange::end(int rank) {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_[static_cast<std::size_t>(rank)] = true;
}

void Exchange::progress() {
  const std::lock_guard<std::mutex> lock(mutex_);
  last_progress_ = Clock::now();
}

void Exchange::fail() {
  const std::lock_guard<std::mutex> lock(mutex_);
  failed_ = true;
  changed_.notify_all();
}

std::vector<LinkBytes> Exchange::link_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace tilescope
