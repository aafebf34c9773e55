// SPDX-License-Identifier: Apache-2.0
// Processes of one program, a rank each: what they tell each other beside NCCL, by files in a folder that all
// of them see. Nobody waits for ever: whoever fails, ends or stands still is named to all.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "distributed/processes/launcher.hpp"

namespace tilescope {

/// Each rank holds a lock on a file of its own while it lives, which the system takes from a process that
/// ends however it ends. Values are files that appear whole under their name; the first failure is one file.
class ProcessGroup {
 public:
  /// Meets the others. @param limit  of everything that one waits for another
  /// @throws RankFailure naming a rank that does not come within it, BadInput for a folder of somebody else's
  /// or of another run
  explicit ProcessGroup(const ProcessPlace& place,
                        std::chrono::milliseconds limit = std::chrono::seconds(60));
  ~ProcessGroup();
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }
  int local_rank() const { return place_.local_rank; }

  /// All ranks call it with as many values: values = fold(values, those of the next rank), in order of ranks;
  /// every rank gets the result. @throws RankFailure, of a rank that has another number of values too
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
  /// This rank has waited too long for it knows not whom: asks who else has, and blames who has not.
  /// @throws RankFailure, always
  [[noreturn]] void stalled(const std::string& why);

 private:
  void take_folder();
  void await_others();
  void leave() noexcept;
  void reduce_bytes(std::span<std::byte> values, const std::function<void(const std::byte* more)>& fold);
  std::filesystem::path values_of(int rank) const;
  void write(const std::filesystem::path& path, std::span<const std::byte> data) const;
  /// Waits for a file of rank `from`, which must have the size of `data`.
  void read(int from, std::span<std::byte> data);
  std::filesystem::path lock_of(int rank) const;
  bool is_alive(int rank) const;
  /// The first that has ended, or -1.
  int ended_rank() const;
  /// @throws RankFailure if a failure has been told; waits with who stalls
  void heed_others();
  /// Tells all, unless another failure has been told before. @throws RankFailure with the one that was
  [[noreturn]] void blame(int rank, const std::string& why);
  void tell_failure(int rank, const std::string& why) const;

  ProcessPlace place_;
  std::chrono::milliseconds limit_;
  int lock_ = -1;  // descriptor of this rank's locked file
  int turn_ = 0;   // reductions so far
  bool stalls_ = false;
};

}  // namespace tilescope
