// SPDX-License-Identifier: Apache-2.0
#include "distributed/timeline/clocks.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

namespace tilescope {

double SmClock::uneven_seconds() const {
  double idle = 0;
  for (const double free : free_) idle += latest_ - free;
  return idle / static_cast<double>(free_.size());
}

double SmClock::advance(double time) {
  double idle = 0;
  for (double& free : free_) {  // a heap stays one
    if (free >= time) continue;
    idle += std::max(0.0, std::min(time, latest_) - free);
    free = time;
  }
  latest_ = std::max(latest_, time);
  return idle / static_cast<double>(free_.size());
}

void SmClock::insert(double seconds) {
  for (double& free : free_) free += seconds;
  latest_ += seconds;
}

double SmClock::take_turn(double seconds) {
  std::pop_heap(free_.begin(), free_.end(), std::greater<>());
  const double end = free_.back() += seconds;
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
  latest_ = std::max(latest_, end);
  return end;
}

double SmClock::issue(const std::vector<EvenCtas>& runs, double tile_seconds) {
  const auto sms = static_cast<std::int64_t>(free_.size());
  double end = 0;
  for (const EvenCtas& run : runs) {
    const double seconds = run.tiles * tile_seconds;
    std::int64_t left = run.ctas;
    while (left > 0) {
      // No SM gets a second one of these before each has one: so many rounds at once.
      if (left >= sms && latest_ - free_.front() <= seconds) {
        const double rounds = static_cast<double>(left / sms) * seconds;
        for (double& free : free_) free += rounds;
        end = latest_ += rounds;
        left %= sms;
        continue;
      }
      end = std::max(end, take_turn(seconds));
      --left;
    }
  }
  return end;
}

template <typename Visitor>
void ReadyOperations::for_each_wait(const DistributedProgram& program, Visitor&& visit) {
  std::map<std::pair<int, int>, int>
      last;  // by rank and, of copies, the receiver; else minus the compute stream
  for (int i = 0; i < static_cast<int>(program.operations.size()); ++i) {
    const Operation& operation = program.operations[at(i)];
    const Move* const move = std::get_if<Move>(&operation.what);
    const bool copy = move != nullptr && move->kind == MoveKind::copy;
    const int stream = copy ? program.rank_of(move->to) : -1 - operation.compute_stream;
    const auto [before, is_first] = last.try_emplace({program.rank_of(operation), stream}, i);
    if (!is_first) visit(std::exchange(before->second, i), i);
    for (const int wait : operation.waits) visit(wait, i);
  }
}

ReadyOperations::ReadyOperations(const DistributedProgram& program)
    : missing_(program.operations.size()),
      time_(program.operations.size()),
      first_(program.operations.size() + 1) {
  for_each_wait(program, [&](int before, int after) {
    ++first_[at(before) + 1];
    ++missing_[at(after)];
  });
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  waiting_.resize(first_.back());
  std::vector<std::size_t> next = first_;
  for_each_wait(program, [&](int before, int after) { waiting_[next[at(before)]++] = after; });
  for (int i = 0; i < static_cast<int>(missing_.size()); ++i) {
    if (missing_[at(i)] == 0) ready_.push({0, i});
  }
}

int ReadyOperations::take() {
  const int operation = ready_.top().operation;
  ready_.pop();
  return operation;
}

void ReadyOperations::note_end(int operation, double end) {
  for (std::size_t i = first_[at(operation)]; i < first_[at(operation) + 1]; ++i) {
    const int waiting = waiting_[i];
    time_[at(waiting)] = std::max(time_[at(waiting)], end);
    if (--missing_[at(waiting)] == 0) ready_.push({time_[at(waiting)], waiting});
  }
}

}  // namespace tilescope
