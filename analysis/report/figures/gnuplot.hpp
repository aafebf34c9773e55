// SPDX-License-Identifier: Apache-2.0
// Runs one of the scripts of plots/ through gnuplot and returns the SVG.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilescope {

/// What a plot script reads: variables, arrays and data blocks, written in gnuplot's language.
class PlotInput {
 public:
  void define(std::string_view name, double value);
  void define(std::string_view name, std::string_view value);
  /// An array; an empty one is not defined, because gnuplot has none.
  void define(std::string_view name, const std::vector<double>& values);
  void define(std::string_view name, const std::vector<std::string>& values);
  /// Tick marks of axis 'x' or 'y': label and position.
  void ticks(char axis, const std::vector<std::pair<std::string, double>>& ticks);
  /// A data block $name: groups of rows, addressed by `index`.
  void data(std::string_view name, const std::vector<std::vector<std::vector<double>>>& groups);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Draws `script` ("plots/lines.gp", after plots/style.gp) over `input`. The same input gives the same bytes
/// with the same gnuplot version.
/// @throws MachineLacks when gnuplot is not installed or fails
std::string draw_svg(std::string_view script, const PlotInput& input);

/// "gnuplot 5.4 patchlevel 4", as `gnuplot --version` says it.
/// @throws MachineLacks when gnuplot is not installed
std::string gnuplot_version();

}  // namespace tilescope
