// SPDX-License-Identifier: Apache-2.0
#include "common/number_format.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "common/errors.hpp"

namespace tilescope {
namespace {

/// `value` with four significant digits, without exponent; whole numbers up to 9999 without fraction.
std::string four_digits(double value) {
  if (value == 0) return "0";
  if (value == std::floor(value) && std::fabs(value) < 1e4) return fmt::format("{:.0f}", value);
  const int digits_before = static_cast<int>(std::floor(std::log10(std::fabs(value)))) + 1;
  return fmt::format("{:.{}f}", value, std::max(0, 4 - std::max(1, digits_before)));
}

std::string with_prefix(double value, const char* unit) {
  constexpr const char* prefixes[] = {"", "k", "M", "G", "T", "P", "E"};
  std::size_t step = 0;
  while (std::fabs(value) >= 999.95 && step + 1 < std::size(prefixes)) {
    value /= 1000;
    ++step;
  }
  return fmt::format("{} {}{}", four_digits(value), prefixes[step], unit);
}

}  // namespace

std::string format_bytes(double bytes) { return with_prefix(bytes, "B"); }
std::string format_flops(double flops) { return with_prefix(flops, "FLOP"); }
std::string format_count(double count) { return with_prefix(count, ""); }

std::string short_kernel_name(const std::string& name) {
  constexpr std::size_t kLongest = 60;
  std::string text = name.substr(0, name.find('('));
  if (text.starts_with("void ")) text.erase(0, 5);
  return text.size() <= kLongest ? text : text.substr(0, kLongest - 3) + "...";
}

std::string short_tick(std::string label) {
  const std::size_t space = label.find(' ');
  std::string number = label.substr(0, space);
  if (number.find('.') != std::string::npos) {
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
  }
  return space == std::string::npos ? number : number + label.substr(space);
}

std::string format_ratio(double ratio) {
  return ratio < 9.995 ? fmt::format("{:.2f}x", ratio)
                       : fmt::format("{:.{}f}x", ratio, ratio < 99.95 ? 1 : 0);
}

std::string format_length(std::int64_t length) {
  return length >= 1024 && length % 1024 == 0 ? fmt::format("{}K", length / 1024) : fmt::format("{}", length);
}

std::string format_capacity(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  std::size_t step = 0;
  while (value >= 1024 && step + 1 < std::size(units)) {
    value /= 1024;
    ++step;
  }
  return fmt::format("{} {}", four_digits(value), units[step]);
}

std::string format_seconds(double seconds) {
  if (seconds >= 1) return four_digits(seconds) + " s";
  if (seconds >= 1e-3) return four_digits(seconds * 1e3) + " ms";
  return four_digits(seconds * 1e6) + " us";
}

std::string format_number(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  const double size = std::fabs(value);
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return fmt::format("{:.2e}", value);
  return four_digits(value);
}

std::string format_tick(double value) {
  if (std::fabs(value) >= 1e6) return format_count(value);
  if (value == 0 || std::fabs(value) >= 1e-3) return four_digits(value);
  constexpr int kDigits = 4;
  const int before_first = static_cast<int>(-std::floor(std::log10(std::fabs(value)))) - 1;
  return fmt::format("{:.{}f}", value, before_first + kDigits);
}

namespace {

void require_range(double low, double high) {
  if (low > 0 && std::isnormal(low) && high >= low && std::isfinite(high)) return;
  throw BadInput("axis", format_number(low) + " ... " + format_number(high), "must be positive and finite");
}

}  // namespace

std::vector<std::pair<std::string, double>> logarithmic_ticks(double low, double high,
                                                              std::string (*format)(double)) {
  require_range(low, high);
  constexpr double kDecadesAlone = 3.0;
  const bool between = std::log10(high / low) < kDecadesAlone;
  std::vector<std::pair<std::string, double>> ticks;
  for (int decade = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, decade) <= high; ++decade) {
    for (const double digit : {1.0, 2.0, 5.0}) {
      const double value = digit * std::pow(10.0, decade);
      if (value < low || value > high || (digit != 1.0 && !between)) continue;
      ticks.emplace_back(short_tick(format(value)), value);
    }
  }
  return ticks;
}

std::vector<std::pair<std::string, double>> linear_ticks(double high, std::string (*format)(double)) {
  require_range(high, high);
  const double decade = std::pow(10.0, std::floor(std::log10(high)));
  double step = decade;
  for (const double fraction : {0.1, 0.2, 0.25, 0.5, 1.0}) {
    if (high / (fraction * decade) <= 7.5) {
      step = fraction * decade;
      break;
    }
  }
  std::vector<std::pair<std::string, double>> ticks;
  for (int i = 0; i <= high / step * (1 + 1e-9); ++i)
    ticks.emplace_back(short_tick(format(i * step)), i * step);
  return ticks;
}

}  // namespace tilescope
