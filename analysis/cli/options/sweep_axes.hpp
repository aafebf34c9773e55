// SPDX-License-Identifier: Apache-2.0
// --sweep AXIS=VALUE,VALUE...: the cartesian product of several axes round one problem.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope::cli {

/// A problem and what a sweep sets of the kernel's own choices.
struct SweepPoint {
  AttentionProblem problem;
  std::optional<TileShape> tile;
  std::optional<BackwardOrder> backward;
  std::optional<TileOrder> order;
  std::optional<Scan> scan;
  std::optional<int> diagonal_slices;
  std::optional<Fp8Sums> fp8_sums;

  /// The kernel's options with the point's choices in their place.
  ProgramOptions apply_to(ProgramOptions options) const;
};

/// --sweep, which may be repeated. Must outlive the parsing.
class SweepAxes {
 public:
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
  /// @throws BadInput on an unknown axis or a value that cannot be
  std::vector<SweepPoint> points(const AttentionProblem& base) const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tilescope::cli
