// SPDX-License-Identifier: Apache-2.0
// --sweep AXIS=VALUE,VALUE...: the cartesian product of several axes round one problem; and --shard I/N, one
// of N parts of it, so that as many processes or hosts share it; `record merge` puts their records together.
#pragma once

#include <CLI/App.hpp>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/cli/options/kernel_options.hpp"

namespace tilescope::cli {

/// A problem and what a sweep sets of the kernel's own choices.
struct SweepPoint {
  AttentionProblem problem;
  KernelChoices choices;
  /// Why it is no problem, as heads = 4 and heads_kv = 3 are none: a BadInput, or null.
  std::exception_ptr refusal = nullptr;

  /// The kernel's options with the point's choices in their place.
  ProgramOptions apply_to(ProgramOptions options) const {
    return choices.apply_to(std::move(options), problem);
  }
};

/// --sweep, which may be repeated. Must outlive the parsing.
class SweepAxes {
 public:
  static constexpr std::size_t kMostPoints = 10'000;

  SweepAxes() = default;
  /// Of texts that another option took.
  explicit SweepAxes(std::vector<std::string> texts) : texts_(std::move(texts)) {}
  void add_to(CLI::App& command);
  /// The names of all axes, with commas between them.
  static std::string axis_names();
  bool given() const { return !texts_.empty(); }
  /// Whether some --sweep is of that axis.
  bool sets(std::string_view axis) const;
  /// Every combination, the last axis varying fastest; `base` alone without axes. tokens and hidden set the
  /// batch and the heads from what the other axes set: batch = tokens / seqlen, heads = hidden / head_dim.
  /// @throws BadInput on an unknown axis, a value that is none, more than kMostPoints, or where no point is a
  /// problem
  std::vector<SweepPoint> points(const AttentionProblem& base) const;

 private:
  std::vector<std::string> texts_;
};

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
