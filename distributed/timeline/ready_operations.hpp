// SPDX-License-Identifier: Apache-2.0
// Operations in the order in which they can start: each after those that it waits for and the one before it
// on its stream, which is a compute stream of its rank or, of copies, a pair of ranks.
#pragma once

#include <queue>
#include <vector>

#include "distributed/schedule/distributed_program.hpp"

namespace tilescope {

class ReadyOperations {
 public:
  explicit ReadyOperations(const DistributedProgram& program);
  bool any() const { return !ready_.empty(); }
  /// The one that can start first; of several the first of the program.
  int take();
  void note_end(int operation, double end);

 private:
  struct Ready {
    double time;
    int operation;
    bool operator>(const Ready& other) const {
      return time != other.time ? time > other.time : operation > other.operation;
    }
  };
  template <typename Visitor>
  static void for_each_wait(const DistributedProgram& program, Visitor&& visit);

  std::vector<int> missing_;        // by operation: those before it that have not ended
  std::vector<double> time_;        // when the last of the others did
  std::vector<std::size_t> first_;  // by operation: of those that wait for it, in `waiting_`
  std::vector<int> waiting_;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace tilescope
