// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/svg_frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tilescope {
namespace {

constexpr double kTextHeight = 14, kSample = 24;

}  // namespace

double text_width(std::string_view text) {
  constexpr double kWidestMean = 7.1;  // of fonts that are common for sans-serif, at 12.5 units
  return kWidestMean * static_cast<double>(text.size());
}

std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

std::string svg_text(double x, double y, std::string_view text, Anchor anchor) {
  const char* from = anchor == Anchor::start    ? ""
                     : anchor == Anchor::middle ? " class=\"t\""
                                                : " class=\"e\"";
  return fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n", from, coordinate(x), coordinate(y),
                     escape_markup(text));
}

std::string marker_path(Marker marker, double x, double y) {
  constexpr const char* shapes[] = {"",
                                    "m0-3.4a3.4 3.4 0 1 1-.1 0z",
                                    "m-3-3h6v6h-6z",
                                    "m0-4 4 7h-8z",
                                    "m0 4 4-7h-8z",
                                    "m0-4 4 4-4 4-4-4z",
                                    "m0-4 4 3-2 4h-4l-2-4z",
                                    "m-3-3 6 6m0-6-6 6",
                                    "m-4 0h8m-4-4v8",
                                    "m-4 0h8m-6-3 4 6m0-6-4 6"};
  return marker == Marker::none ? ""
                                : fmt::format("M{} {}{}", coordinate(x), coordinate(y),
                                              shapes[static_cast<std::size_t>(marker)]);
}

std::string marker_id(const Look& look) {
  return fmt::format("{}{}c{}", look.filled ? 'm' : 'o', static_cast<int>(look.marker),
                     static_cast<int>(look.color));
}

std::string marker_element(const Look& look) {
  return fmt::format(
      "<marker id=\"{}\" class=\"{}\" markerUnits=\"userSpaceOnUse\" overflow=\"visible\"><path class=\"{}\" "
      "d=\"{}\"/></marker>",
      marker_id(look), color_class(look.color), marker_class(look), marker_path(look.marker, 0, 0));
}

std::string color_class(Color color) { return fmt::format("c{}", static_cast<int>(color)); }

std::string marker_class(const Look& look) { return look.filled ? "m" : "m o"; }

Frame::Frame(const ChartAxis& x, const ChartAxis& y, double plot_height, double beside) : x_(x), y_(y) {
  double labels = 0;
  for (const auto& [label, value] : y.ticks) labels = std::max(labels, text_width(label));
  left = labels + 8;
  right = kDrawingWidth - 10 - beside;
  top = 24;
  bottom = top + plot_height;
}

double Frame::position(const ChartAxis& axis, double value, double from, double to) {
  const double share = axis.logarithmic ? std::log(value / axis.low) / std::log(axis.high / axis.low)
                                        : (value - axis.low) / (axis.high - axis.low);
  return from + share * (to - from);
}

std::string Frame::draw() const {
  std::string grid, labels;
  double free_from = -1e9;
  for (const auto& [label, value] : x_.ticks) {
    const double at = x(value);
    grid += fmt::format("M{} {}V{}", coordinate(at), coordinate(top), coordinate(bottom));
    const double half = text_width(label) / 2;
    const double centre = std::min(at, kDrawingWidth - half);
    if (centre - half < free_from) continue;
    free_from = centre + half + 5;
    labels += svg_text(centre, bottom + 17, label, Anchor::middle);
  }
  double free_above = 1e9;
  for (const auto& [label, value] : y_.ticks) {  // ascending
    const double at = y(value);
    grid += fmt::format("M{} {}H{}", coordinate(left), coordinate(at), coordinate(right));
    if (at > free_above) continue;
    free_above = at - kTextHeight;
    labels += svg_text(left - 6, at + 4, label, Anchor::end);
  }
  labels += svg_text(0, 12, y_.label);
  labels += svg_text(std::min((left + right) / 2, kDrawingWidth - text_width(x_.label) / 2), bottom + 35,
                     x_.label, Anchor::middle);
  return fmt::format("<path class=\"g\" d=\"{}\"/>\n<path class=\"a\" d=\"M{} {}V{}H{}\"/>\n", grid,
                     coordinate(left), coordinate(top), coordinate(bottom), coordinate(right)) +
         labels;
}

double room_for(const std::vector<EndLabel>& labels) {
  constexpr double kMostRoom = 150;
  double widest = 0;
  for (const EndLabel& label : labels) widest = std::max(widest, text_width(label.text));
  return std::min(widest, kMostRoom);
}

std::string draw_labels(std::vector<EndLabel> labels, const Frame& frame) {
  constexpr double kTogether = 7, kFar = 3, kLead = 8;
  std::ranges::stable_sort(labels, {}, &EndLabel::y);
  const auto same = [](const EndLabel& a, const EndLabel& b) {
    return a.text == b.text && a.color == b.color && std::abs(a.y - b.y) < kTogether;
  };
  labels.erase(std::unique(labels.begin(), labels.end(), same), labels.end());
  std::vector<double> places;
  for (const EndLabel& label : labels)
    places.push_back(places.empty() ? label.y : std::max(label.y, places.back() + kTextHeight));
  double lowest = frame.bottom;
  for (std::size_t i = places.size(); i-- > 0; lowest = places[i] - kTextHeight)
    places[i] = std::min(places[i], lowest);
  std::string drawn;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const EndLabel& label = labels[i];
    const double at = frame.right + kLead;
    drawn += fmt::format("<g class=\"{}\">", color_class(label.color));
    if (std::abs(places[i] - label.y) > kFar || frame.right - label.x > kLead) {
      drawn += fmt::format("<path class=\"lead\" d=\"M{} {}L{} {}\"/>", coordinate(label.x + 4),
                           coordinate(label.y), coordinate(at - 2), coordinate(places[i]));
    }
    drawn += fmt::format("<text class=\"k\" x=\"{}\" y=\"{}\">{}</text></g>\n", coordinate(at),
                         coordinate(places[i] + 4), escape_markup(label.text));
  }
  return drawn;
}

Drawing legend(const std::vector<LegendEntry>& entries, double top) {
  if (entries.empty()) return {};
  double widest = 0;
  for (const LegendEntry& entry : entries)
    widest = std::max(widest, kSample + 8 + text_width(entry.title) + 12);
  const int columns = std::max(1, static_cast<int>(kDrawingWidth / widest));
  Drawing drawing;
  constexpr double kRow = 19;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto column = static_cast<double>(i % static_cast<std::size_t>(columns));
    const auto row = static_cast<double>(i / static_cast<std::size_t>(columns));
    drawing.elements +=
        fmt::format("<g transform=\"translate({},{})\">{}", coordinate(column * kDrawingWidth / columns),
                    coordinate(top + kRow * row + 10), entries[i].sample);
    drawing.elements +=
        fmt::format("<text x=\"{}\" y=\"4\">{}</text></g>\n", kSample + 8, escape_markup(entries[i].title));
    drawing.height = kRow * (row + 1) + 4;
  }
  return drawing;
}

}  // namespace tilescope
