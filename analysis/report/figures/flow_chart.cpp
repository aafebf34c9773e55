// SPDX-License-Identifier: Apache-2.0
// SMs, L2 and DRAM as boxes, and between them what is read and written: as wide as it is much, with what must
// move as a core.
#include <fmt/format.h>

#include <algorithm>

#include "analysis/report/figures/svg_frame.hpp"
#include "common/number_format.hpp"

namespace tilescope {
namespace {

constexpr double kBox = 56, kTop = 4, kBottom = 196, kWidestPipe = 44, kThinnestPipe = 1.6;
constexpr double kReadAt = 92, kWriteAt = 148;  // the middles of the pipes

std::string box(double x, std::string_view name, std::string_view below) {
  const double middle = x + kBox / 2;
  return fmt::format("<rect class=\"x\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\"/>\n",
                     coordinate(x), kTop, kBox, kBottom - kTop) +
         fmt::format("<text class=\"t h\" x=\"{}\" y=\"{}\">{}</text>\n", coordinate(middle), 116,
                     escape_markup(name)) +
         (below.empty() ? "" : svg_text(middle, 134, below, Anchor::middle));
}

double thickness(double bytes, const FlowChart& chart) {
  return bytes <= 0 ? 0 : std::max(kThinnestPipe, bytes / chart.widest * kWidestPipe);
}

/// An arrow between `from` and `to` round y, with what must move inside. Its head is a little wider than it.
std::string pipe(double from, double to, double y, const std::optional<double>& bytes,
                 const std::optional<double>& must, const FlowChart& chart) {
  const double width = thickness(bytes.value_or(0), chart);
  if (width == 0) return "";
  const double toward = to > from ? 1 : -1, head = std::clamp(width * 0.6, 7.0, 16.0), half = width / 2,
               wing = half + std::clamp(width * 0.2, 3.0, 5.0);
  const double neck = to - toward * head;
  std::string drawn = fmt::format(
      "<path class=\"p {}\" d=\"M{} {}H{}V{}L{} {}L{} {}V{}H{}Z\"/>\n", color_class(chart.color),
      coordinate(from), coordinate(y - half), coordinate(neck), coordinate(y - wing), coordinate(to),
      coordinate(y), coordinate(neck), coordinate(y + wing), coordinate(y + half), coordinate(from));
  if (!must || *must >= *bytes) return drawn;
  return drawn + fmt::format("<path class=\"core\" stroke-width=\"{:.1f}\" d=\"M{} {}H{}\"/>\n",
                             std::min(width, std::max(1.0, thickness(*must, chart))), coordinate(from),
                             coordinate(y), coordinate(neck));
}

/// What crosses between the box that ends at `left` and the one that begins at `right`.
std::string flow(double left, double right, const std::optional<FlowBytes>& bytes, const FlowChart& chart) {
  const double middle = (left + right) / 2;
  const auto centred = [middle](const char* classes, double y, const std::string& text) {
    return fmt::format("<text class=\"t {}\" x=\"{}\" y=\"{}\">{}</text>\n", classes, coordinate(middle), y,
                       escape_markup(text));
  };
  if (!bytes) return centred("", 124, "not counted");
  constexpr const char* outcomes[] = {"v good", "v mixed", "v bad", "v"};
  const auto known = [](const char* way, const std::optional<double>& amount) {
    return amount ? way + format_bytes(*amount) : std::string("not counted");
  };
  const std::string sum =
      bytes->read && bytes->written ? format_bytes(*bytes->read + *bytes->written) : std::string();
  std::string drawn = centred(outcomes[static_cast<std::size_t>(bytes->outcome)], 26,
                              bytes->multiple.empty() ? sum : bytes->multiple);
  if (!bytes->multiple.empty()) {
    const bool whole = bytes->read && bytes->written;
    const double must = bytes->must_read.value_or(0) + (whole ? bytes->must_write.value_or(0) : 0);
    drawn += centred("", 43, "of " + format_bytes(must));
  }
  drawn += centred("", 62, known("read ", bytes->read));
  drawn += centred("", 190, known("written ", bytes->written));
  constexpr double kApart = 3;
  return drawn + pipe(right - kApart, left + kApart, kReadAt, bytes->read, bytes->must_read, chart) +
         pipe(left + kApart, right - kApart, kWriteAt, bytes->written, bytes->must_write, chart);
}

}  // namespace

void share_width(std::vector<FlowChart>& charts) {
  double widest = 0;
  for (const FlowChart& chart : charts) {
    for (const auto& flow : {chart.sm_l2, chart.dram}) {
      if (flow) widest = std::max({widest, flow->read.value_or(0), flow->written.value_or(0)});
    }
  }
  for (FlowChart& chart : charts) chart.widest = widest;
}

Drawing draw(const FlowChart& chart) {
  const double l2 = (kDrawingWidth - kBox) / 2, dram = kDrawingWidth - kBox;
  return {kBottom + 4, box(0, "SMs", "tiles") + box(l2, "L2", "cache") + box(dram, "DRAM", "tensors") +
                           flow(kBox, l2, chart.sm_l2, chart) + flow(l2 + kBox, dram, chart.dram, chart)};
}

}  // namespace tilescope
