// SPDX-License-Identifier: Apache-2.0
// What a sweep goes on without: problems that cannot be, or that a kernel, a peer or this machine refuses.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/records/run_record.hpp"
#include "common/errors.hpp"

namespace tilescope::cli {

/// "gpu:flash3, backward": what is refused.
std::string kernel_and_direction(std::string_view kernel, Direction direction);

/// Each is named with its reason, and all are counted and recorded.
class Refusals {
 public:
  /// @param sweeps  else what is refused ends the command
  explicit Refusals(bool sweeps = true) : sweeps_(sweeps) {}

  /// Whether `attempt` throws neither BadInput nor MachineLacks, which are added. @param what "cpu:flash2,
  /// backward" @param runs  that it stands for
  /// @throws them, where there is no sweep
  template <typename Attempt>
  bool allow(const std::string& what, const std::string& problem, Attempt&& attempt, std::size_t runs = 1) {
    try {
      attempt();
      return true;
    } catch (const BadInput&) {
      add(what, problem, std::current_exception(), runs);
    } catch (const MachineLacks&) {
      add(what, problem, std::current_exception(), runs);
    }
    if (!sweeps_) std::rethrow_exception(all_.back().thrown);
    return false;
  }
  /// What is refused as `thrown` says.
  void add(const std::string& what, const std::string& problem, std::exception_ptr thrown,
           std::size_t runs = 1);

  bool any() const { return !all_.empty(); }
  /// @throws the first of them. Precondition: any()
  [[noreturn]] void throw_first() const { std::rethrow_exception(all_.front().thrown); }
  /// A line for each kernel, direction and reason, and how many they are beside those that ran; nothing
  /// without any.
  std::string text(std::size_t ran) const;
  /// In a record, each with its problem.
  std::vector<std::string> lines() const;

 private:
  struct Refusal {
    std::string what, problem, reason;
    std::exception_ptr thrown;
    std::size_t runs;
    /// With its problem.
    std::string line() const;
  };
  bool sweeps_;
  std::vector<Refusal> all_;
};

}  // namespace tilescope::cli
