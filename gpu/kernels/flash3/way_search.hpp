// SPDX-License-Identifier: Apache-2.0
// What the searches for a way to run a problem share (choices.cpp, ordered_choices.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <vector>

#include "cpu_ref/schedule/problem.hpp"
#include "gpu/kernels/flash3/forward/shapes.hpp"

namespace tilescope {

/// When the last of work items ends that multiprocessors take in turn.
class MultiprocessorQueue {
 public:
  MultiprocessorQueue() {
    for (int i = 0; i < kHopperMultiprocessors; ++i) free_.push(0.0);
  }
  /// When the one that is free first begins, which gives itself back at `end`.
  double take() {
    const double begin = free_.top();
    free_.pop();
    return begin;
  }
  void give_back(double end) {
    free_.push(end);
    end_ = std::max(end_, end);
  }
  void take_for(double cost) { give_back(take() + cost); }
  double end() const { return end_; }

 private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_;
  double end_ = 0.0;
};

/// The last answers of a thread: a choice takes up to some milliseconds, and layers ask again and again.
template <typename Way, Way (*choose)(const AttentionProblem&)>
Way remembered(const AttentionProblem& problem) {
  struct Answer {
    AttentionProblem problem;
    Way way;
  };
  constexpr std::size_t kMost = 8;
  thread_local std::vector<Answer> answers;
  thread_local std::size_t next = 0;
  for (const Answer& answer : answers) {
    if (answer.problem == problem) return answer.way;
  }
  const Way way = choose(problem);
  if (answers.size() < kMost) {
    answers.push_back({problem, way});
  } else {
    answers[next++ % kMost] = {problem, way};
  }
  return way;
}

}  // namespace tilescope
