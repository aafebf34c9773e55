// SPDX-License-Identifier: Apache-2.0
// --shard I/N: one of N parts of a sweep, so that as many processes or hosts share it; `record merge` puts
// their records together.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tilescope::cli {

class Shard {
 public:
  /// Must outlive the parsing. @param others options of `command` that make one result of all tasks
  /// @param json  where the record goes, in which {part} becomes the part's number: parts that one launcher
  /// starts have the same words, and would write the same file
  void add_to(CLI::App& command, const std::vector<std::string>& others, std::string& json);
  bool given() const { return text_.has_value(); }
  /// "I/N" for the record, also where the variables of a job scheduler said so; nothing without --shard.
  /// @throws BadInput if it is no part, or `auto` finds no variables
  std::optional<std::string> name() const;
  /// The tasks of this part: neighbours, so that the parts one after the other are the whole, each of about
  /// the same cost. A part may be empty.
  /// @param costs one a task, in any unit
  template <typename Task>
  std::vector<Task> part_of(std::vector<Task> tasks, const std::vector<double>& costs) const {
    const auto [first, last] = range(costs);
    return {std::make_move_iterator(tasks.begin() + first), std::make_move_iterator(tasks.begin() + last)};
  }

 private:
  struct Part {
    std::int64_t index = 0, parts = 1;
  };
  Part part() const;
  std::pair<std::ptrdiff_t, std::ptrdiff_t> range(const std::vector<double>& costs) const;

  std::optional<std::string> text_;
};

}  // namespace tilescope::cli
