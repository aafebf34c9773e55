// SPDX-License-Identifier: Apache-2.0
// Processes of one program, a rank each, all connected to that of rank 0: what they tell each other beside
// NCCL. Nobody waits for ever: whoever fails, ends or stands still is named to all.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "distributed/processes/launcher.hpp"

namespace tilescope {

class ProcessGroup {
 public:
  /// Connects all. @param limit  of everything that one waits for another
  /// @throws RankFailure naming a rank that does not come within it
  explicit ProcessGroup(const ProcessPlace& place,
                        std::chrono::milliseconds limit = std::chrono::seconds(60));
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  int local_rank() const { return place_.local_rank; }

  /// All ranks call it with as many values: values = fold(values, those of the next rank), in order of ranks;
  /// every rank gets the result. @throws RankFailure
  template <typename Value, typename Fold>
  void reduce(std::span<Value> values, Fold&& fold) {
    reduce_bytes(std::as_writable_bytes(values), [&](const std::byte* more) {
      const auto* const others = reinterpret_cast<const Value*>(more);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = fold(values[i], others[i]);
    });
  }

  /// While this rank waits for something else. @throws RankFailure if another one has failed or ended
  void check();
  /// Tells the others that this rank cannot go on.
  void fail(const std::string& why) noexcept;
  /// This rank has waited too long for it knows not whom: asks who else has, and names who has not.
  /// @throws RankFailure, always
  [[noreturn]] void stalled(const std::string& why);

 private:
  enum class Kind : char { values = 'v', failure = 'f', stall = 's' };
  struct Head {
    Kind kind;
    int rank;
    std::int64_t size;
  };
  using Deadline = std::chrono::steady_clock::time_point;

  void accept_all();
  void connect_to_first();
  void reduce_bytes(std::span<std::byte> values, const std::function<void(const std::byte* more)>& fold);
  void send(int to, Kind kind, int rank, std::span<const std::byte> data);
  std::vector<std::byte> receive(int from);
  void read(int from, std::span<std::byte> data);
  /// Looks at what `from` has sent, if anything. @throws RankFailure unless it is values
  void look_at(int from);
  void await_readable(int from);
  [[noreturn]] void named(int rank, const std::string& why);
  [[noreturn]] void name_the_silent(const std::string& why);

  ProcessPlace place_;
  std::chrono::milliseconds limit_;
  std::vector<int> sockets_;  // by rank: rank 0's to each other; another's to rank 0 alone; -1: none
  std::vector<bool> stalled_;
  bool ended_ = false;  // a failure has been told, or heard of
};

}  // namespace tilescope
