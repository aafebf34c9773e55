// SPDX-License-Identifier: Apache-2.0
// What all charts are drawn with: a frame with two axes, markers and a legend, as elements of SVG.
#pragma once

#include <string>
#include <vector>

#include "analysis/report/figures/charts.hpp"

namespace tilescope {

/// Room that a text is sure to fit in, whatever font the reader has.
double text_width(std::string_view text);

/// "12.5": a coordinate with at most one decimal.
std::string coordinate(double value);

/// Which of its ends stands at the place of a text.
enum class Anchor { start, middle, end };
std::string svg_text(double x, double y, std::string_view text, Anchor anchor = Anchor::start);

/// Path data of a marker round a point.
std::string marker_path(Marker marker, double x, double y);

/// The same as an element that a line bears at all its points by the name of the look's marker; writers keep
/// one of each name (take_markers).
std::string marker_element(const Look& look);
std::string marker_id(const Look& look);

std::string color_class(Color color);
/// Classes of the marker of a look.
std::string marker_class(const Look& look);

/// A rectangle of the drawing, with the values of its sides.
class Frame {
 public:
  /// @param beside room at the right for labels()
  Frame(const ChartAxis& x, const ChartAxis& y, double plot_height, double beside = 0);

  double x(double value) const { return position(x_, value, left, right); }
  double y(double value) const { return position(y_, value, bottom, top); }
  /// Grid, axes, ticks and labels. Ticks for which there is no room are left out.
  std::string draw() const;

  double left, right, top, bottom;
  /// Where the labels below end.
  double end() const { return bottom + 40; }

 private:
  static double position(const ChartAxis& axis, double value, double from, double to);
  const ChartAxis &x_, &y_;
};

/// A name beside the end of a line.
struct EndLabel {
  double x = 0, y = 0;  // where the line ends
  std::string text;
  Color color = Color::ink;
};
/// Room for the widest of them beside a frame.
double room_for(const std::vector<EndLabel>& labels);
/// At the right of the frame, pushed apart where they would overlap, each led to from its line. Equal names
/// of one colour whose lines end together stand once.
std::string draw_labels(std::vector<EndLabel> labels, const Frame& frame);

struct LegendEntry {
  std::string title;
  std::string sample;  // elements over 24 units, round y = 0
};

/// In columns, from y = top on.
Drawing legend(const std::vector<LegendEntry>& entries, double top);

}  // namespace tilescope
