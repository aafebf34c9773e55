// SPDX-License-Identifier: Apache-2.0
#include "analysis/report/figures/looks.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

namespace tilescope {
namespace {

struct NamedLook {
  std::string_view name;
  Look look;
};

/// The registry. A name without "cpu:" or "gpu:", up to its choices.
constexpr NamedLook kLooks[] = {
    {"standard", {.color = Color::purple, .marker = Marker::circle}},
    {"flash1", {.color = Color::vermilion, .marker = Marker::triangle}},
    {"flash2", {.color = Color::blue, .marker = Marker::square}},
    {"flash2-mma", {.color = Color::blue, .marker = Marker::square}},
    {"flash2-simt", {.color = Color::sky, .marker = Marker::square}},  // a shade: the same algorithm
    {"split-k", {.color = Color::sky, .marker = Marker::diamond}},
    {"flash3", {.color = Color::green, .marker = Marker::pentagon}},
    {"flash3-basic", {.color = Color::green, .marker = Marker::triangle_down}},
    {"pytorch:flash2", {.color = Color::amber, .marker = Marker::square}},
    {"pytorch:cudnn", {.color = Color::brown, .marker = Marker::diamond}},
    {"pytorch:efficient", {.color = Color::olive, .marker = Marker::triangle_down}},
    {"pytorch:math", {.color = Color::dark, .marker = Marker::circle}},
    {"flash-attn:flash4", {.color = Color::dark, .marker = Marker::triangle}},
    {"triton:plain", {.color = Color::teal, .marker = Marker::star}},
    {"triton:tuned", {.color = Color::teal, .marker = Marker::pentagon}},
    {"ring", {.color = Color::teal, .marker = Marker::circle}},
    {"zigzag", {.color = Color::brown, .marker = Marker::diamond}},
    {"striped", {.color = Color::olive, .marker = Marker::triangle}},
    {"all-gather", {.color = Color::amber, .marker = Marker::square}},
    {"all-gather-heads", {.color = Color::amber, .marker = Marker::triangle_down}},
    {"ulysses", {.color = Color::dark, .marker = Marker::pentagon}},
    {"ulysses-heads", {.color = Color::dark, .marker = Marker::star}},
    {"ulysses-ring", {.color = Color::dark, .marker = Marker::circle}},
};

constexpr Color kOthers[] = {Color::amber, Color::teal, Color::brown, Color::olive};
constexpr Marker kMarkers[] = {Marker::circle,        Marker::square,   Marker::triangle, Marker::diamond,
                               Marker::triangle_down, Marker::pentagon, Marker::star};

const Look* known_look(std::string_view name) {
  const auto* const found = std::ranges::find(kLooks, name, &NamedLook::name);
  return found == std::end(kLooks) ? nullptr : &found->look;
}

}  // namespace

Look look_of(const std::string& name, std::optional<Algorithm> algorithm) {
  std::string_view base = name;
  base = base.substr(0, base.find(' '));
  for (const std::string_view room : {"cpu:", "gpu:"}) {
    if (base.starts_with(room)) base.remove_prefix(room.size());
  }
  if (const Look* known = known_look(base)) return *known;
  if (algorithm) return *known_look(to_string(*algorithm));
  const std::size_t letters = std::accumulate(base.begin(), base.end(), std::size_t{0});
  return {.color = kOthers[letters % std::size(kOthers)], .marker = kMarkers[letters % std::size(kMarkers)]};
}

std::string short_name(const std::string& name) {
  constexpr std::size_t kLong = 20;
  const std::string own = name.substr(name.starts_with("gpu:") ? 4 : 0);
  return own.size() <= kLong ? own : own.substr(0, own.find(" ("));
}

Look FigureLooks::take(const std::string& name, std::optional<Algorithm> algorithm) {
  const auto known = by_name_.find(name);
  if (known != by_name_.end()) return known->second;
  Look look = look_of(name, algorithm);
  const auto used = [&](Marker marker) {
    return std::ranges::any_of(by_name_, [&](const auto& other) {
      return other.second.color == look.color && other.second.marker == marker;
    });
  };
  if (used(look.marker)) {
    const auto* const free = std::ranges::find_if_not(kMarkers, used);
    if (free != std::end(kMarkers)) look.marker = *free;
  }
  return by_name_[name] = look;
}

}  // namespace tilescope
