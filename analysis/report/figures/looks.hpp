// SPDX-License-Identifier: Apache-2.0
// How lines and points look in all figures of all pages: one colour an algorithm, by its name and not by the
// order in which figures meet it; solid lines and filled markers at SM<->L2, dashed lines and open markers at
// DRAM.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "cpu_ref/schedule/tile_program.hpp"

namespace tilescope {

/// Classes c0 ... of templates/figure.css: darker on white and lighter on black, so that each stands out from
/// its ground. Blue, sky, vermilion, purple and green belong to algorithms; amber, teal, brown and olive to
/// whatever else a figure tells apart; dark, grey and ink to bounds and to what is true of all; good and bad
/// to changes.
enum class Color : std::uint8_t {
  dark,
  grey,
  blue,
  vermilion,
  green,
  purple,
  sky,
  amber,
  ink,
  teal,
  brown,
  olive,
  good,
  bad
};

/// Line styles that stay apart in grey.
enum class Dash : std::uint8_t { solid, dashed, dotted, dash_dotted };

/// Marker shapes; filled and open variants of one shape belong together.
enum class Marker : std::uint8_t {
  none,
  circle,
  square,
  triangle,
  triangle_down,
  diamond,
  pentagon,
  cross,
  plus,
  star
};

struct Look {
  Color color = Color::ink;
  Marker marker = Marker::none;
  bool filled = true;
  Dash dash = Dash::solid;
  bool line = true;  // or markers alone
  bool operator==(const Look&) const = default;
};

/// The look of a name: "gpu:flash2-mma split (longest-first)", "flash1", "pytorch:cudnn", "ring". What the
/// registry does not know looks as its algorithm does, and without one as its place among the colours for
/// others, which its letters choose.
Look look_of(const std::string& name, std::optional<Algorithm> algorithm = std::nullopt);

/// What stands beside a line: the name without "gpu:" and, where that is long, without the orders.
std::string short_name(const std::string& name);

/// The looks of one plot: those of the registry, with markers that tell apart what has one colour.
class FigureLooks {
 public:
  /// The one that `name` was given before, if it was.
  Look take(const std::string& name, std::optional<Algorithm> algorithm = std::nullopt);
  /// Those handed out by name.
  const std::map<std::string, Look>& known() const { return by_name_; }

 private:
  std::map<std::string, Look> by_name_;
};

inline Look at_dram(Look look) {
  look.dash = Dash::dashed;
  look.filled = false;
  return look;
}

inline const Look kFloorLook = {.dash = Dash::dash_dotted};
inline const Look kBoundLook = {.dash = Dash::dotted};

}  // namespace tilescope
